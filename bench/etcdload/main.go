// etcdload puts one kind of load on a server that speaks the etcd v3 API, through etcd's own Go client, and prints
// one JSON line of figures. The bench drives etcd with it, and Lockstep's etcd door too.
//
//	etcdload -endpoints 127.0.0.1:2379 -mode put -clients 64 -duration 5s
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

type settings struct {
	endpoints   []string
	mode        string
	target      string
	clients     int
	connections int
	warmup      time.Duration
	duration    time.Duration
	valueBytes  int
	keys        int
	leases      int
	firstKey    int
	watches     int
	ttl         time.Duration
	killPid     int
	serverPids  []int
	readPercent int
}

// report has the same fields as the one of bench/src/native-load.ts.
type report struct {
	Mode                string  `json:"mode"`
	Clients             int     `json:"clients"`
	Connections         int     `json:"connections"`
	Operations          uint64  `json:"operations"`
	Completed           uint64  `json:"completed"`
	Seconds             float64 `json:"seconds"`
	OperationsPerSecond float64 `json:"operationsPerSecond"`
	Errors              uint64  `json:"errors"`
	FirstError          string  `json:"firstError,omitempty"`
	P50Ms               float64 `json:"p50Ms"`
	P90Ms               float64 `json:"p90Ms"`
	P99Ms               float64 `json:"p99Ms"`
	P999Ms              float64 `json:"p999Ms"`
	MaxMs               float64 `json:"maxMs"`
	CPUSeconds          float64 `json:"cpuSeconds"`

	Figures map[string]float64 `json:"figures,omitempty"`
}

var modes = map[string]func(s settings, pool []*clientv3.Client) (*tally, time.Duration, error){
	"fill":         fill,
	"put":          put,
	"get":          get,
	"serializable": serializable,
	"mixed":        mixed,
	"txnlock":      txnLock,
	"grant":        grant,
	"renew":        renew,
	"watch":        watch,
	"mutex":        mutex,
	"expiry":       expiry,
	"failover":     failover,
	"scale":        scale,
}

func main() {
	s := parse()
	if err := run(s); err != nil {
		fmt.Fprintln(os.Stderr, "etcdload:", err)
		os.Exit(1)
	}
}

func parse() settings {
	var s settings
	names := make([]string, 0, len(modes))
	for name := range modes {
		names = append(names, name)
	}
	slices.Sort(names)
	endpoints := flag.String("endpoints", "127.0.0.1:2379", "host:port of the members, comma separated")
	flag.StringVar(&s.mode, "mode", "put", strings.Join(names, " | "))
	flag.StringVar(&s.target, "target", "leader", "leader: send everything to the leader; all: spread the connections over the members")
	flag.IntVar(&s.clients, "clients", 64, "operations in flight; renew: renewals in flight; watch: ignored")
	flag.IntVar(&s.connections, "connections", 10, "connections")
	flag.DurationVar(&s.warmup, "warmup", time.Second, "load before measuring")
	flag.DurationVar(&s.duration, "duration", 5*time.Second, "time to measure")
	flag.IntVar(&s.valueBytes, "value-bytes", 256, "size of a value")
	flag.IntVar(&s.keys, "keys", 100_000, "size of the key space")
	flag.IntVar(&s.leases, "leases", 10_000, "renew, expiry, scale: leases; watch: watchers of one key")
	flag.IntVar(&s.firstKey, "first-key", 0, "fill: the first key to write")
	flag.IntVar(&s.watches, "watches", 0, "scale: watches at the end")
	flag.DurationVar(&s.ttl, "ttl", time.Minute, "expiry: how long a session lives")
	flag.IntVar(&s.killPid, "kill-pid", 0, "failover: the process to kill")
	pids := flag.String("server-pids", "", "scale: whose resident memory to read, comma separated")
	flag.IntVar(&s.readPercent, "read-percent", 80, "mixed: share of linearizable reads")
	flag.Parse()
	s.endpoints = strings.Split(*endpoints, ",")
	for _, text := range strings.FieldsFunc(*pids, func(r rune) bool { return r == ',' }) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			flag.Usage()
			os.Exit(2)
		}
		s.serverPids = append(s.serverPids, pid)
	}
	if modes[s.mode] == nil || (s.target != "leader" && s.target != "all") || s.clients < 1 || s.connections < 1 || s.keys < 1 || s.leases < 1 {
		flag.Usage()
		os.Exit(2)
	}
	s.connections = min(s.connections, s.clients)
	return s
}

func run(s settings) error {
	leader, err := findLeader(s.endpoints)
	if err != nil {
		return err
	}
	// The leader is the first, also where all are wanted.
	others := slices.DeleteFunc(slices.Clone(s.endpoints), func(endpoint string) bool { return endpoint == leader })
	s.endpoints = []string{leader}
	if s.target == "all" {
		s.endpoints = append(s.endpoints, others...)
	}
	pool := make([]*clientv3.Client, s.connections)
	for i := range pool {
		client, err := connect(s.endpoints[i%len(s.endpoints)])
		if err != nil {
			return err
		}
		defer client.Close()
		pool[i] = client
	}
	sum, elapsed, err := modes[s.mode](s, pool)
	if err != nil {
		return err
	}
	return print(s, sum, elapsed)
}

func connect(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:   []string{endpoint},
		DialTimeout: 5 * time.Second,
		Logger:      zap.NewNop(),
	})
}

func findLeader(endpoints []string) (string, error) {
	var last error
	for _, endpoint := range endpoints {
		leads, err := isLeader(endpoint)
		if leads {
			return endpoint, nil
		}
		if err != nil {
			last = err
		}
	}
	return "", fmt.Errorf("none of %v says that it leads (last error: %v)", endpoints, last)
}

func isLeader(endpoint string) (bool, error) {
	client, err := connect(endpoint)
	if err != nil {
		return false, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	status, err := client.Status(ctx, endpoint)
	if err != nil {
		return false, err
	}
	return status.Leader != 0 && status.Leader == status.Header.MemberId, nil
}

func print(s settings, sum *tally, elapsed time.Duration) error {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report{
		Mode:                s.mode,
		Clients:             s.clients,
		Connections:         s.connections,
		Operations:          sum.operations,
		Completed:           sum.completed,
		Seconds:             elapsed.Seconds(),
		OperationsPerSecond: float64(sum.operations) / elapsed.Seconds(),
		Errors:              sum.errors,
		FirstError:          sum.firstError,
		P50Ms:               sum.latencies.quantileMs(0.5),
		P90Ms:               sum.latencies.quantileMs(0.9),
		P99Ms:               sum.latencies.quantileMs(0.99),
		P999Ms:              sum.latencies.quantileMs(0.999),
		MaxMs:               float64(sum.latencies.max.Microseconds()) / 1000,
		CPUSeconds:          time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds(),
		Figures:             sum.figures,
	})
}
