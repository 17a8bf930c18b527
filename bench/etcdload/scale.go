package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// Longer than any run: nothing may end by itself.
	scaleLeaseSeconds = 3 * 3600
	firstStep         = 100
	// Between the growth and the look at memory.
	settle = 2 * time.Second
)

// stage has the same fields as the one of bench/src/load-report.ts.
type stage struct {
	Kind              string  `json:"kind"`
	Sessions          int     `json:"sessions"`
	Watches           int     `json:"watches"`
	ResidentBytes     []int64 `json:"residentBytes"`
	OpenedPerSecond   float64 `json:"openedPerSecond"`
	RenewalsPerSecond float64 `json:"renewalsPerSecond"`
	PutsPerSecond     float64 `json:"putsPerSecond"`
	PutP50Ms          float64 `json:"putP50Ms"`
	PutP99Ms          float64 `json:"putP99Ms"`
	Events            int64   `json:"events"`
	Errors            uint64  `json:"errors"`
}

// stepsTo: 100, 1,000, ... up to and with `most`.
func stepsTo(most int) []int {
	var steps []int
	for step := firstStep; step < most; step *= 10 {
		steps = append(steps, step)
	}
	if most > 0 {
		steps = append(steps, most)
	}
	return steps
}

type scaling struct {
	s        settings
	pool     []*clientv3.Client
	data     *corpus
	ctx      context.Context
	ids      []clientv3.LeaseID
	watches  int
	events   atomic.Int64
	failures atomic.Int64
	sum      *tally
}

// scale grows to `leases` sessions and then to `watches` watches, and prints a stage at each power of ten: memory,
// renewals, and what a put costs by then.
func scale(s settings, pool []*clientv3.Client) (*tally, time.Duration, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	run := &scaling{s: s, pool: pool, data: newCorpus(s), ctx: ctx, sum: &tally{}}
	if err := run.stage("sessions", 0, 0); err != nil {
		return nil, 0, err
	}
	for _, step := range stepsTo(s.leases) {
		if err := run.growSessions(step); err != nil {
			return nil, 0, err
		}
	}
	for _, step := range stepsTo(s.watches) {
		if err := run.growWatches(step); err != nil {
			return nil, 0, err
		}
	}
	return run.sum, time.Second, nil
}

func (run *scaling) growSessions(to int) error {
	begin, from := time.Now(), len(run.ids)
	run.ids = append(run.ids, make([]clientv3.LeaseID, to-from)...)
	err := inParallel(to-from, 256, func(i int) error {
		answer, err := run.pool[i%len(run.pool)].Grant(run.ctx, scaleLeaseSeconds)
		if err == nil {
			run.ids[from+i] = answer.ID
		}
		return err
	})
	if err != nil {
		return err
	}
	perSecond := float64(to-from) / time.Since(begin).Seconds()
	renewals := renewFor(run.s, run.pool, run.ids)
	run.sum.errors += renewals.errors
	return run.stage("sessions", perSecond, float64(renewals.operations)/run.s.duration.Seconds())
}

func (run *scaling) growWatches(to int) error {
	begin, from := time.Now(), run.watches
	err := inParallel(to-from, 256, func(i int) error {
		client := run.pool[i%len(run.pool)]
		deliveries := client.Watch(run.ctx, watchKey(from+i), clientv3.WithCreatedNotify())
		if created, open := <-deliveries; !open || created.Err() != nil {
			return fmt.Errorf("a watch was not created: %w", created.Err())
		}
		go func() {
			for delivery := range deliveries {
				run.events.Add(int64(len(delivery.Events)))
			}
			if run.ctx.Err() == nil {
				run.failures.Add(1)
			}
		}()
		return nil
	})
	if err != nil {
		return err
	}
	run.watches = to
	return run.stage("watches", float64(to-from)/time.Since(begin).Seconds(), 0)
}

func watchKey(index int) string { return fmt.Sprintf("/watch/%08d", index) }

// stage puts for some seconds (of keys that somebody watches, once there are watches), looks, and prints.
func (run *scaling) stage(kind string, opened, renewals float64) error {
	before, random := run.events.Load(), randoms(run.s.clients)
	sum := closedLoop(newPlan(min(time.Second, run.s.warmup), run.s.duration), run.s.clients, func(ctx context.Context, worker int) error {
		r := random[worker]
		key := run.data.key(r)
		if run.watches > 0 {
			key = watchKey(r.IntN(run.watches))
		}
		_, err := run.pool[worker%len(run.pool)].Put(ctx, key, run.data.value(r))
		return err
	})
	time.Sleep(settle)
	came := run.events.Load() - before
	if run.watches > 0 && came != int64(sum.completed) {
		sum.errors++
		sum.firstError = fmt.Sprintf("%d of %d events came", came, sum.completed)
	}
	if run.failures.Load() > 0 {
		return errors.New("a watch ended")
	}
	resident, err := residentBytes(run.s.serverPids)
	if err != nil {
		return err
	}
	run.sum.add(sum)
	return json.NewEncoder(os.Stdout).Encode(map[string]stage{"stage": {
		Kind:              kind,
		Sessions:          len(run.ids),
		Watches:           run.watches,
		ResidentBytes:     resident,
		OpenedPerSecond:   opened,
		RenewalsPerSecond: renewals,
		PutsPerSecond:     float64(sum.operations) / run.s.duration.Seconds(),
		PutP50Ms:          sum.latencies.quantileMs(0.5),
		PutP99Ms:          sum.latencies.quantileMs(0.99),
		Events:            came,
		Errors:            sum.errors,
	}})
}

func residentBytes(pids []int) ([]int64, error) {
	all := make([]int64, len(pids))
	for i, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return nil, err
		}
		for line := range strings.SplitSeq(string(status), "\n") {
			if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
				var kilobytes int64
				if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
					return nil, err
				}
				all[i] = kilobytes * 1024
			}
		}
	}
	return all, nil
}
