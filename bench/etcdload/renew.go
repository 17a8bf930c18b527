package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var errEnded = errors.New("a lease that was being renewed has ended")

// renew keeps `clients` renewals in flight, spread over one keep-alive stream for each connection: what a program
// with many leases does, without the client library's pace of three renewals a TTL.
func renew(s settings, pool []*clientv3.Client) (*tally, time.Duration, error) {
	ids, err := grantAll(pool, s.leases)
	if err != nil {
		return nil, 0, err
	}
	return renewFor(s, pool, ids), s.duration, nil
}

func renewFor(s settings, pool []*clientv3.Client, ids []clientv3.LeaseID) *tally {
	p := newPlan(s.warmup, s.duration)
	ctx, cancel := context.WithDeadline(context.Background(), p.until.Add(stragglerLimit))
	defer cancel()
	tallies := make([]tally, len(pool))
	var done sync.WaitGroup
	for i, client := range pool {
		own := ids[i*len(ids)/len(pool) : (i+1)*len(ids)/len(pool)]
		if len(own) == 0 {
			continue
		}
		stream, err := pb.NewLeaseClient(client.ActiveConnection()).LeaseKeepAlive(ctx)
		if err != nil {
			tallies[i].fail(err)
			continue
		}
		window := max(1, s.clients/len(pool))
		done.Go(func() { renewStream(p, stream, own, window, &tallies[i]) })
	}
	done.Wait()
	sum := &tally{}
	for i := range tallies {
		sum.add(&tallies[i])
	}
	return sum
}

// renewStream: a stream answers in the order it was asked, so the times of sending are a queue.
func renewStream(p plan, stream pb.Lease_LeaseKeepAliveClient, ids []clientv3.LeaseID, window int, t *tally) {
	sent := make(chan time.Time, window)
	failed := make(chan error, 1)
	go func() {
		defer close(sent)
		request := &pb.LeaseKeepAliveRequest{}
		for n := 0; time.Now().Before(p.until); n++ {
			sent <- time.Now()
			request.ID = int64(ids[n%len(ids)])
			if err := stream.Send(request); err != nil {
				failed <- err
				return
			}
		}
	}()
	for begin := range sent {
		answer, err := stream.Recv()
		if err != nil {
			t.fail(fmt.Errorf("keep-alive stream: %w", err))
			for range sent {
				t.errors++
			}
			break
		}
		end := time.Now()
		if answer.TTL <= 0 {
			t.fail(errEnded)
		} else {
			t.success(p, begin, end)
		}
	}
	select {
	case err := <-failed:
		t.fail(err)
	default:
		_ = stream.CloseSend()
	}
}
