package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// plan is when a run measures: the load is on from the start, samples count between the end of the warm-up and
// the end. Errors count always.
type plan struct {
	from, until time.Time
}

func newPlan(warmup, duration time.Duration) plan {
	from := time.Now().Add(warmup)
	return plan{from: from, until: from.Add(duration)}
}

// tally is what one worker saw. Each worker owns one, so that counting needs no lock.
type tally struct {
	latencies  histogram
	operations uint64 // measured
	completed  uint64 // measured or not
	errors     uint64
	firstError string
	figures    map[string]float64 // what else the mode found, of the sum only
}

// success counts an answer, as a sample if it came in the measured time.
func (t *tally) success(p plan, begin, end time.Time) {
	t.completed++
	if end.After(p.from) && end.Before(p.until) {
		t.operations++
		t.latencies.record(end.Sub(begin))
	}
}

func (t *tally) fail(err error) {
	t.errors++
	if t.firstError == "" {
		t.firstError = err.Error()
	}
}

func (t *tally) add(other *tally) {
	t.latencies.add(&other.latencies)
	t.operations += other.operations
	t.completed += other.completed
	t.errors += other.errors
	if t.firstError == "" {
		t.firstError = other.firstError
	}
}

// An operation that was sent before the end of a run and is not answered this long after it is an error.
const stragglerLimit = 10 * time.Second

// A worker that got an error waits before its next try: a refusing server must not be asked in a tight loop.
const pauseAfterError = 5 * time.Millisecond

// closedLoop runs `workers` loops, each with one operation in flight, and sums up what they saw.
func closedLoop(p plan, workers int, operation func(ctx context.Context, worker int) error) *tally {
	ctx, cancel := context.WithDeadline(context.Background(), p.until.Add(stragglerLimit))
	defer cancel()
	tallies := make([]tally, workers)
	var done sync.WaitGroup
	for worker := range workers {
		done.Go(func() { loop(ctx, p, &tallies[worker], func() error { return operation(ctx, worker) }) })
	}
	done.Wait()
	sum := &tally{}
	for i := range tallies {
		sum.add(&tallies[i])
	}
	return sum
}

func loop(ctx context.Context, p plan, t *tally, operation func() error) {
	begin := time.Now()
	for begin.Before(p.until) {
		err := operation()
		end := time.Now()
		if err == nil {
			t.success(p, begin, end)
		} else {
			t.fail(err)
			if ctx.Err() != nil {
				return
			}
			time.Sleep(pauseAfterError)
			end = time.Now()
		}
		begin = end
	}
}

// inParallel runs set-up work, at most `width` at once, and returns the first error.
func inParallel(count, width int, work func(i int) error) error {
	var next, failed sync.Mutex
	var first error
	i := 0
	take := func() int {
		next.Lock()
		defer next.Unlock()
		i++
		return i - 1
	}
	var done sync.WaitGroup
	for range min(width, count) {
		done.Go(func() {
			for mine := take(); mine < count; mine = take() {
				if err := work(mine); err != nil {
					failed.Lock()
					if first == nil {
						first = fmt.Errorf("set-up: %w", err)
					}
					failed.Unlock()
					return
				}
			}
		})
	}
	done.Wait()
	return first
}
