package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	expiryPrefix = "/expiry/"
	// The foreground is measured for this long before the first session ends.
	beforeLimit = 5 * time.Second
	// Whoever needs longer is not waited for: what is still there then is an error.
	goneLimit = 240 * time.Second
)

// departures sees the sessions' keys go.
type departures struct {
	count atomic.Int64
	last  atomic.Int64 // UnixNano
	all   chan struct{}
}

// stopAfter ends the run when all have gone, or at the limit.
func (d *departures) stopAfter(limit time.Duration) chan struct{} {
	stop := make(chan struct{})
	go func() {
		select {
		case <-d.all:
		case <-time.After(limit):
		}
		close(stop)
	}()
	return stop
}

func watchDepartures(ctx context.Context, client *clientv3.Client, wanted int64) (*departures, error) {
	d := &departures{all: make(chan struct{})}
	deliveries := client.Watch(ctx, expiryPrefix, clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	if created, open := <-deliveries; !open || created.Err() != nil {
		return nil, fmt.Errorf("the watch of the sessions' keys: %w", created.Err())
	}
	go func() {
		for delivery := range deliveries {
			d.last.Store(time.Now().UnixNano())
			if d.count.Add(int64(len(delivery.Events))) >= wanted {
				close(d.all)
				return
			}
		}
	}()
	return d, nil
}

// foreground is what one put worker saw, told apart by whether a put was sent before or after the sessions began to end.
type foreground struct {
	before histogram
	during tally
}

// expiry: `leases` sessions with a key each, renewed together for the last time, end together. An operation is a put
// of the foreground while they do; the figures tell how long that took beyond the last one's end by its TTL.
func expiry(s settings, pool []*clientv3.Client) (*tally, time.Duration, error) {
	data := newCorpus(s)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	gone, err := watchDepartures(ctx, pool[0], int64(s.leases))
	if err != nil {
		return nil, 0, err
	}
	ids, err := grantWithKeys(pool, s.leases, int64(s.ttl.Seconds()))
	if err != nil {
		return nil, 0, err
	}
	firstEnd := time.Now().Add(s.ttl)
	if err := renewAll(ctx, pool, ids); err != nil {
		return nil, 0, err
	}
	lastEnd := time.Now().Add(s.ttl)
	if gone.count.Load() > 0 {
		return nil, 0, errors.New("sessions ended before all were there: use a longer -ttl")
	}
	before := min(beforeLimit, s.ttl/2)
	time.Sleep(time.Until(firstEnd.Add(-before - time.Second)))
	workers := make([]foreground, s.clients)
	var done sync.WaitGroup
	for worker := range workers {
		done.Go(func() {
			putUntil(ctx, gone.all, s, data, pool[worker%len(pool)], worker, firstEnd, before, &workers[worker])
		})
	}
	done.Wait()
	sum, quiet := &tally{}, &histogram{}
	for i := range workers {
		sum.add(&workers[i].during)
		quiet.add(&workers[i].before)
	}
	last := time.Unix(0, gone.last.Load())
	if left := int64(s.leases) - gone.count.Load(); left > 0 {
		sum.errors += uint64(left)
		sum.firstError = fmt.Sprintf("%d sessions were still there at the end", left)
		last = time.Now()
	}
	sum.figures = map[string]float64{
		"untilGoneSeconds": max(0, last.Sub(lastEnd).Seconds()),
		"p50BeforeMs":      quiet.quantileMs(0.5),
		"p99BeforeMs":      quiet.quantileMs(0.99),
		"p99DuringMs":      sum.latencies.quantileMs(0.99),
	}
	return sum, last.Sub(firstEnd), nil
}

func putUntil(ctx context.Context, stop chan struct{}, s settings, data *corpus, client *clientv3.Client, worker int, firstEnd time.Time, before time.Duration, seen *foreground) {
	random := randoms(worker + 1)[worker]
	during := plan{from: firstEnd, until: firstEnd.Add(24 * time.Hour)}
	for {
		select {
		case <-stop:
			return
		default:
		}
		begin := time.Now()
		_, err := client.Put(ctx, data.key(random), data.value(random))
		end := time.Now()
		switch {
		case err != nil:
			seen.during.fail(err)
			time.Sleep(pauseAfterError)
		case !begin.Before(firstEnd):
			seen.during.success(during, begin, end)
		case !begin.Before(firstEnd.Add(-before)):
			seen.before.record(end.Sub(begin))
		}
	}
}

func grantWithKeys(pool []*clientv3.Client, count int, seconds int64) ([]clientv3.LeaseID, error) {
	ids := make([]clientv3.LeaseID, count)
	err := inParallel(count, 256, func(i int) error {
		client := pool[i%len(pool)]
		answer, err := client.Grant(context.Background(), seconds)
		if err != nil {
			return err
		}
		ids[i] = answer.ID
		_, err = client.Put(context.Background(), fmt.Sprintf("%s%08d", expiryPrefix, i), "here", clientv3.WithLease(answer.ID))
		return err
	})
	return ids, err
}

// renewAll renews each lease once, over one keep-alive stream for each connection.
func renewAll(ctx context.Context, pool []*clientv3.Client, ids []clientv3.LeaseID) error {
	return inParallel(len(pool), len(pool), func(i int) error {
		own := ids[i*len(ids)/len(pool) : (i+1)*len(ids)/len(pool)]
		stream, err := pb.NewLeaseClient(pool[i].ActiveConnection()).LeaseKeepAlive(ctx)
		if err != nil {
			return err
		}
		failed := make(chan error, 1)
		go func() {
			for _, id := range own {
				if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
					failed <- err
					return
				}
			}
			failed <- stream.CloseSend()
		}()
		for range own {
			answer, err := stream.Recv()
			if err != nil {
				return err
			}
			if answer.TTL <= 0 {
				return errors.New("a lease had ended before the last was granted: use a longer -ttl")
			}
		}
		return <-failed
	})
}
