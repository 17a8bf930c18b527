package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Long enough that no lease ends during a run.
const leaseSeconds = 600

var (
	errMissing = errors.New("a filled key was not found with its value")
	errLost    = errors.New("a lock that nobody else wants was not free, or was lost")
)

// corpus holds every key and a pool of random bytes to cut values from, so that making a request costs the
// generator next to nothing and values do not compress.
type corpus struct {
	keys       []string
	pool       string
	valueBytes int
}

func newCorpus(s settings) *corpus {
	c := &corpus{keys: make([]string, s.keys), valueBytes: s.valueBytes}
	for i := range c.keys {
		c.keys[i] = fmt.Sprintf("/bench/%08d", i)
	}
	random := rand.New(rand.NewPCG(1, 2))
	bytes := make([]byte, 1<<20+s.valueBytes)
	for i := range bytes {
		bytes[i] = byte(random.Uint32())
	}
	c.pool = string(bytes)
	return c
}

func (c *corpus) value(r *rand.Rand) string {
	at := r.IntN(1 << 20)
	return c.pool[at : at+c.valueBytes]
}

func (c *corpus) key(r *rand.Rand) string { return c.keys[r.IntN(len(c.keys))] }

func randoms(count int) []*rand.Rand {
	all := make([]*rand.Rand, count)
	for i := range all {
		all[i] = rand.New(rand.NewPCG(7, uint64(i)))
	}
	return all
}

// each is the closed loop of a workload that needs a connection and randomness only.
func each(s settings, pool []*clientv3.Client, operation func(ctx context.Context, c *clientv3.Client, r *rand.Rand) error) (*tally, time.Duration, error) {
	random := randoms(s.clients)
	sum := closedLoop(newPlan(s.warmup, s.duration), s.clients, func(ctx context.Context, worker int) error {
		return operation(ctx, pool[worker%len(pool)], random[worker])
	})
	return sum, s.duration, nil
}

func put(s settings, pool []*clientv3.Client) (*tally, time.Duration, error) {
	data := newCorpus(s)
	return each(s, pool, func(ctx context.Context, c *clientv3.Client, r *rand.Rand) error {
		_, err := c.Put(ctx, data.key(r), data.value(r))
		return err
	})
}

func read(ctx context.Context, c *clientv3.Client, key string, valueBytes int, options ...clientv3.OpOption) error {
	answer, err := c.Get(ctx, key, options...)
	if err == nil && (len(answer.Kvs) != 1 || len(answer.Kvs[0].Value) != valueBytes) {
		return errMissing
	}
	return err
}

func get(s settings, pool []*clientv3.Client) (*tally, time.Duration, error) {
	data := newCorpus(s)
	return each(s, pool, func(ctx context.Context, c *clientv3.Client, r *rand.Rand) error {
		return read(ctx, c, data.key(r), s.valueBytes)
	})
}

func serializable(s settings, pool []*clientv3.Client) (*tally, time.Duration, error) {
	data := newCorpus(s)
	return each(s, pool, func(ctx context.Context, c *clientv3.Client, r *rand.Rand) error {
		return read(ctx, c, data.key(r), s.valueBytes, clientv3.WithSerializable())
	})
}

func mixed(s settings, pool []*clientv3.Client) (*tally, time.Duration, error) {
	data := newCorpus(s)
	return each(s, pool, func(ctx context.Context, c *clientv3.Client, r *rand.Rand) error {
		if r.IntN(100) < s.readPercent {
			return read(ctx, c, data.key(r), s.valueBytes)
		}
		_, err := c.Put(ctx, data.key(r), data.value(r))
		return err
	})
}

func grant(s settings, pool []*clientv3.Client) (*tally, time.Duration, error) {
	return each(s, pool, func(ctx context.Context, c *clientv3.Client, _ *rand.Rand) error {
		_, err := c.Grant(ctx, leaseSeconds)
		return err
	})
}

func grantAll(pool []*clientv3.Client, count int) ([]clientv3.LeaseID, error) {
	ids := make([]clientv3.LeaseID, count)
	err := inParallel(count, 256, func(i int) error {
		answer, err := pool[i%len(pool)].Grant(context.Background(), leaseSeconds)
		if err == nil {
			ids[i] = answer.ID
		}
		return err
	})
	return ids, err
}

// fill writes every key once, 64 puts to a transaction; an operation is a key.
func fill(s settings, pool []*clientv3.Client) (*tally, time.Duration, error) {
	const batch = 64
	data := newCorpus(s)
	random := randoms(s.clients)
	batches := (s.keys - s.firstKey + batch - 1) / batch
	tallies := make([]tally, s.clients)
	var next atomic.Int64
	begin := time.Now()
	err := inParallel(s.clients, s.clients, func(worker int) error {
		for mine := int(next.Add(1)) - 1; mine < batches; mine = int(next.Add(1)) - 1 {
			first := s.firstKey + mine*batch
			keys := data.keys[first:min(first+batch, s.keys)]
			operations := make([]clientv3.Op, len(keys))
			for i, key := range keys {
				operations[i] = clientv3.OpPut(key, data.value(random[worker]))
			}
			sent := time.Now()
			if _, err := pool[worker%len(pool)].Txn(context.Background()).Then(operations...).Commit(); err != nil {
				return err
			}
			tallies[worker].operations += uint64(len(keys))
			tallies[worker].completed += uint64(len(keys))
			tallies[worker].latencies.record(time.Since(sent))
		}
		return nil
	})
	elapsed := time.Since(begin)
	sum := &tally{}
	for i := range tallies {
		sum.add(&tallies[i])
	}
	return sum, elapsed, err
}

// txnLock takes and gives back a lock that nobody else wants: create the key, under a lease, if it is not there;
// then delete it if it is still the one that was created. An operation is the pair.
func txnLock(s settings, pool []*clientv3.Client) (*tally, time.Duration, error) {
	leases, err := grantAll(pool, s.clients)
	if err != nil {
		return nil, 0, err
	}
	names := make([]string, s.clients)
	for i := range names {
		names[i] = fmt.Sprintf("/locks/%08d", i)
	}
	sum := closedLoop(newPlan(s.warmup, s.duration), s.clients, func(ctx context.Context, worker int) error {
		c, name := pool[worker%len(pool)], names[worker]
		claim, err := c.Txn(ctx).
			If(clientv3.Compare(clientv3.Version(name), "=", 0)).
			Then(clientv3.OpPut(name, "owner", clientv3.WithLease(leases[worker]))).
			Commit()
		if err != nil {
			return err
		}
		if !claim.Succeeded {
			return errLost
		}
		release, err := c.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(name), "=", claim.Header.Revision)).
			Then(clientv3.OpDelete(name)).
			Commit()
		if err == nil && !release.Succeeded {
			return errLost
		}
		return err
	})
	return sum, s.duration, nil
}
