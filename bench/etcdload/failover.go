package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// The kill comes this long after the warm-up, so that the second before it is measured too.
	killAfter = time.Second
	// A try at one member; then comes the next. A member that still believes in the dead leader sends what it is given
	// there and waits for seconds, so who wants to go on soon must not wait with it. The clients' limits differ, so that
	// somebody always tries: up to tryLimit and trySpread.
	tryLimit  = 100 * time.Millisecond
	trySpread = 200 * time.Millisecond
)

// gaps are the longest times between acknowledgements, before and after the kill.
type gaps struct {
	sync.Mutex
	killed        time.Time
	last          time.Time
	before, after time.Duration
}

func (g *gaps) acknowledged(now time.Time) {
	g.Lock()
	defer g.Unlock()
	// Negative before the measured time, and for an answer behind its end.
	gap := now.Sub(g.last)
	// A gap that spans the kill is the kill's.
	if !g.killed.IsZero() {
		g.after = max(g.after, gap)
	} else {
		g.before = max(g.before, gap)
	}
	if gap > 0 {
		g.last = now
	}
}

// failover puts in closed loop while the process `kill-pid`, the leader, is killed. pool[0] is connected to it, the
// others to the other members. Each client sends to the leader until that fails, and then to the others in turn: the
// best a client can do that is told of a dead member at once.
func failover(s settings, pool []*clientv3.Client) (*tally, time.Duration, error) {
	if s.killPid == 0 || len(pool) < 2 {
		return nil, 0, errors.New("failover needs -kill-pid, -target all and connections to several members")
	}
	data, random := newCorpus(s), randoms(s.clients)
	p := newPlan(s.warmup, s.duration)
	g := &gaps{last: p.from}
	timer := time.AfterFunc(time.Until(p.from.Add(killAfter)), func() {
		g.Lock()
		defer g.Unlock()
		g.killed = time.Now()
		_ = syscall.Kill(s.killPid, syscall.SIGKILL)
	})
	defer timer.Stop()
	at := make([]atomic.Int32, s.clients)
	sum := closedLoop(p, s.clients, func(ctx context.Context, worker int) error {
		limit := tryLimit + trySpread*time.Duration(worker)/time.Duration(s.clients)
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		r := random[worker]
		_, err := pool[at[worker].Load()].Put(ctx, data.key(r), data.value(r))
		if err != nil {
			next := at[worker].Load()%int32(len(pool)-1) + 1
			at[worker].Store(next)
			return err
		}
		g.acknowledged(time.Now())
		return nil
	})
	// If nothing was acknowledged any more, the gap lasts to the end.
	if now := time.Now(); now.Before(p.until) {
		g.acknowledged(now)
	} else {
		g.acknowledged(p.until)
	}
	sum.figures = map[string]float64{
		"gapMs":       float64(g.after.Microseconds()) / 1000,
		"gapBeforeMs": float64(g.before.Microseconds()) / 1000,
	}
	return sum, s.duration, nil
}
