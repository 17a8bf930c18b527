package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	hotKey      = "/bench-watch"
	stampDigits = 20
)

// watch opens `leases` watches of one key, writes it with one put in flight, and counts deliveries. Latency is from
// the sending of the put to each delivery; a delivery that is missing at the end is an error.
func watch(s settings, pool []*clientv3.Client) (*tally, time.Duration, error) {
	started := time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ready, done sync.WaitGroup
	var p plan
	begin := make(chan struct{})
	tallies := make([]tally, s.leases)
	received := make([]int, s.leases)
	last := make(chan int, 1) // how many puts there were, once it is known
	for i := range s.leases {
		ready.Add(1)
		done.Go(func() {
			deliveries := pool[i%len(pool)].Watch(ctx, hotKey, clientv3.WithCreatedNotify())
			_, open := <-deliveries
			ready.Done()
			<-begin
			if open {
				received[i] = receive(deliveries, started, p, &tallies[i], last)
			}
		})
	}
	ready.Wait()
	p = newPlan(s.warmup, s.duration)
	close(begin)
	puts, err := writeUntil(p, pool[0], s.valueBytes, started)
	if err != nil {
		return nil, 0, err
	}
	last <- puts
	straggler := time.AfterFunc(stragglerLimit, cancel)
	done.Wait()
	straggler.Stop()
	sum := &tally{}
	for i := range tallies {
		sum.add(&tallies[i])
		if missing := puts - received[i]; missing != 0 {
			sum.errors += uint64(max(missing, -missing))
			sum.firstError = fmt.Sprintf("a watcher got %d of %d events", received[i], puts)
		}
	}
	return sum, s.duration, nil
}

func writeUntil(p plan, client *clientv3.Client, valueBytes int, started time.Time) (int, error) {
	padding := strings.Repeat("x", max(0, valueBytes-stampDigits))
	puts := 0
	for time.Now().Before(p.until) {
		stamp := fmt.Sprintf("%0*d", stampDigits, time.Since(started).Nanoseconds())
		if _, err := client.Put(context.Background(), hotKey, stamp+padding); err != nil {
			return puts, err
		}
		puts++
	}
	return puts, nil
}

func receive(deliveries clientv3.WatchChan, started time.Time, p plan, t *tally, last chan int) int {
	count, wanted := 0, -1
	for wanted < 0 || count < wanted {
		select {
		case wanted = <-last:
			last <- wanted // for the next watcher
		case delivery, open := <-deliveries:
			if !open {
				return count
			}
			if err := delivery.Err(); err != nil {
				t.fail(err)
				return count
			}
			now := time.Now()
			for _, event := range delivery.Events {
				count++
				sent, err := strconv.ParseInt(string(event.Kv.Value[:stampDigits]), 10, 64)
				if err != nil {
					t.fail(err)
				} else {
					t.success(p, started.Add(time.Duration(sent)), now)
				}
			}
		}
	}
	return count
}
