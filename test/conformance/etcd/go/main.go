// etcd-conformance holds a server that speaks the etcd v3 API to the rules that etcd's clients rely on. It runs named
// scenarios against running members and prints one JSON line for each:
//
//	etcd-conformance api -endpoints 127.0.0.1:2379,127.0.0.1:22379 -run '^watch/'
//	etcd-conformance recipes -endpoints ... -control http://127.0.0.1:9000
//	etcd-conformance churn -endpoints ... -duration 60s
//
// Each scenario works below a random prefix of its own, so that they run beside each other and on a store that holds
// other keys. Its exit code is 1 when a scenario failed.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

// scenario is one law and the situation it is tried in.
type scenario struct {
	name string
	run  func(t *T)
	// alone: it compacts the history that others read, or counts revisions that others would use up.
	alone bool
	// lockstepOnly: etcd itself does not do this.
	lockstepOnly bool
	// needs is what the caller has to provide: "control" (ends members and starts them again) or "nospace" (a server
	// with a small quota, which is full afterwards).
	needs string
}

// settings come from the command line.
type settings struct {
	endpoints []string
	lockstep  bool
	nospace   bool
	control   string
	timeout   time.Duration
	parallel  int
	churn     churnSettings
}

// result is the line that is printed for a scenario.
type result struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Skipped string `json:"skipped,omitempty"`
	Error   string `json:"error,omitempty"`
	// Detail holds figures of a long run.
	Detail string `json:"detail,omitempty"`
	Ms     int64  `json:"ms"`
}

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	groups := map[string][]scenario{"api": apiScenarios(), "recipes": recipeScenarios(), "churn": churnScenarios()}
	scenarios, known := groups[os.Args[1]]
	if !known {
		usage()
	}
	var s settings
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	endpoints := flags.String("endpoints", "127.0.0.1:2379", "host:port of each member, comma-separated")
	list := flags.Bool("list", false, "print the names of the scenarios and end")
	pattern := flags.String("run", "", "run only the scenarios whose name matches this expression")
	flags.BoolVar(&s.lockstep, "lockstep", false, "the server is a Lockstep cell: its documented differences are expected")
	flags.BoolVar(&s.nospace, "nospace", false, "run the scenarios that fill the store up to its quota")
	flags.StringVar(&s.control, "control", "", "URL that ends members and starts them again: POST URL/kill?member=0")
	flags.DurationVar(&s.timeout, "timeout", 60*time.Second, "limit of one scenario")
	flags.IntVar(&s.parallel, "parallel", 4, "scenarios that run at the same time")
	s.churn.addFlags(flags)
	_ = flags.Parse(os.Args[2:])
	s.endpoints = strings.Split(*endpoints, ",")

	chosen := choose(scenarios, *pattern)
	if *list {
		for _, one := range chosen {
			fmt.Println(one.name)
		}
		return
	}
	if !runAll(&s, chosen) {
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: etcd-conformance api|recipes|churn -endpoints HOST:PORT,... [-list] [-run REGEXP]; -help tells more")
	os.Exit(2)
}

func choose(scenarios []scenario, pattern string) []scenario {
	expression, err := regexp.Compile(pattern)
	if err != nil {
		fmt.Fprintln(os.Stderr, "-run:", err)
		os.Exit(2)
	}
	var chosen []scenario
	for _, one := range scenarios {
		if expression.MatchString(one.name) {
			chosen = append(chosen, one)
		}
	}
	return chosen
}

// runAll runs what may run together first, and then one after the other what may not.
func runAll(s *settings, scenarios []scenario) bool {
	var mu sync.Mutex
	ok := true
	say := func(r result) {
		mu.Lock()
		defer mu.Unlock()
		ok = ok && r.OK
		line, _ := json.Marshal(r)
		fmt.Println(string(line))
	}
	slots := make(chan struct{}, max(1, s.parallel))
	var group sync.WaitGroup
	for _, one := range scenarios {
		if one.alone || one.needs != "" {
			continue
		}
		slots <- struct{}{}
		group.Add(1)
		go func() {
			defer group.Done()
			defer func() { <-slots }()
			say(runOne(s, one))
		}()
	}
	group.Wait()
	for _, one := range scenarios {
		if one.alone || one.needs != "" {
			say(runOne(s, one))
		}
	}
	return ok
}

func whyNot(s *settings, one scenario) string {
	switch {
	case one.lockstepOnly && !s.lockstep:
		return "etcd does not do this"
	case one.needs == "control" && s.control == "":
		return "needs -control"
	case one.needs == "nospace" && !s.nospace:
		return "needs -nospace"
	}
	return ""
}

func runOne(s *settings, one scenario) (r result) {
	r.Name = one.name
	if r.Skipped = whyNot(s, one); r.Skipped != "" {
		r.OK = true
		return r
	}
	started := time.Now()
	limit := s.timeout
	if one.needs == "churn" {
		limit += s.churn.duration
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	t := newT(ctx, s)
	defer func() {
		r.Ms = time.Since(started).Milliseconds()
		t.cleanUp()
		r.Detail = t.detail
		switch cause := recover().(type) {
		case nil:
			r.OK = true
		case skipped:
			r.OK, r.Skipped = true, string(cause)
		case failure:
			r.Error = string(cause)
		default:
			r.Error = fmt.Sprintf("panic: %v", cause)
		}
	}()
	one.run(t)
	return r
}
