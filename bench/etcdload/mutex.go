package main

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Clients that want the same lock.
const contenders = 4

// mutex: `clients` clients, four to a lock, that acquire in queue order and release at once, each with the Mutex of
// etcd's own concurrency package and a session of its own. An operation is the pair.
func mutex(s settings, pool []*clientv3.Client) (*tally, time.Duration, error) {
	mutexes := make([]*concurrency.Mutex, s.clients)
	err := inParallel(s.clients, 64, func(i int) error {
		session, err := concurrency.NewSession(pool[i%len(pool)], concurrency.WithTTL(leaseSeconds))
		if err == nil {
			mutexes[i] = concurrency.NewMutex(session, fmt.Sprintf("/mutex/%08d", i/contenders))
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	sum := closedLoop(newPlan(s.warmup, s.duration), s.clients, func(ctx context.Context, worker int) error {
		// The end of the context ends the watch that waiting may have left.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if err := mutexes[worker].Lock(ctx); err != nil {
			return err
		}
		return mutexes[worker].Unlock(ctx)
	})
	return sum, s.duration, nil
}
