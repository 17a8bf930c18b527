package main

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

type churnSettings struct {
	duration  time.Duration
	writers   int
	watchers  int
	sessions  int
	killEvery time.Duration
}

func (c *churnSettings) addFlags(flags *flag.FlagSet) {
	flags.DurationVar(&c.duration, "duration", 30*time.Second, "churn: how long")
	flags.IntVar(&c.writers, "writers", 8, "churn: clients that write, each to a key of its own and to a shared one")
	flags.IntVar(&c.watchers, "watchers", 6, "churn: clients that watch all of it")
	flags.IntVar(&c.sessions, "sessions", 20, "churn: sessions that must not be lost")
	flags.DurationVar(&c.killEvery, "kill-every", 0, "churn: kill the leader that often (needs -control); 0 leaves it to others")
}

func churnScenarios() []scenario {
	return []scenario{{name: "churn", run: churn, needs: "churn"}}
}

// sessionSeconds is far above an election and below the run.
const sessionSeconds = 15

// churner is one run: what was acknowledged and what was seen.
type churner struct {
	t            *T
	stop         context.Context
	acknowledged []map[int64]bool
	writes       atomic.Int64
	failed       atomic.Int64
	kills        int
}

// churn lets everybody work while members die, and then compares what was acknowledged with what was seen.
func churn(t *T) {
	stop, cancel := context.WithTimeout(t.ctx, t.s.churn.duration)
	defer cancel()
	c := &churner{t: t, stop: stop, acknowledged: make([]map[int64]bool, t.s.churn.writers)}
	sessions := c.openSessions()
	watchers := make([]*churnWatcher, t.s.churn.watchers)
	for i := range watchers {
		watchers[i] = c.startWatcher()
	}
	writing := make(chan struct{})
	go func() {
		defer close(writing)
		var group sync.WaitGroup
		for i := range c.acknowledged {
			group.Add(1)
			go func() {
				defer group.Done()
				c.acknowledged[i] = c.write(i)
			}()
		}
		group.Wait()
	}()
	if t.s.churn.killEvery > 0 {
		c.killLeaders()
	}
	<-writing
	t.writable()
	last := t.get(t.all())
	marker := t.put("data/marker", "the end").Header.Revision
	for i, watcher := range watchers {
		watcher.finish(t, i, marker)
	}
	c.judge(watchers, last.Kvs)
	for i, session := range sessions {
		c.judgeSession(i, session)
	}
	t.check("something was written", c.writes.Load() > 0)
	t.detail = fmt.Sprintf("%d writes acknowledged, %d ended with an error, %d kills, %d events for each of %d watchers, %d sessions",
		c.writes.Load(), c.failed.Load(), c.kills, len(watchers[0].seen), len(watchers), len(sessions))
}

func (c *churner) write(i int) map[int64]bool {
	client := c.t.clientFor(i)
	defer client.Close()
	acknowledged := map[int64]bool{}
	own, shared := fmt.Sprintf("%sdata/writer%03d", c.t.prefix, i), c.t.prefix+"data/shared"
	for n := 0; c.stop.Err() == nil; n++ {
		// Not cut off by the end of the run: an unknown outcome in the last moment is nothing to look for.
		ctx, cancel := context.WithTimeout(c.t.ctx, 5*time.Second)
		var revision int64
		var err error
		if n%4 == 3 {
			var answer *clientv3.TxnResponse
			answer, err = client.Txn(ctx).Then(clientv3.OpPut(own, fmt.Sprint(n)), clientv3.OpPut(shared, fmt.Sprint(i, n))).Commit()
			if err == nil {
				revision = answer.Header.Revision
			}
		} else {
			var answer *clientv3.PutResponse
			answer, err = client.Put(ctx, own, fmt.Sprint(n))
			if err == nil {
				revision = answer.Header.Revision
			}
		}
		cancel()
		if err != nil {
			c.failed.Add(1)
			continue
		}
		c.writes.Add(1)
		acknowledged[revision] = true
	}
	return acknowledged
}

func (t *T) clientFor(i int) *clientv3.Client {
	first := i % len(t.s.endpoints)
	return t.clientOf(append(append([]string{}, t.s.endpoints[first:]...), t.s.endpoints[:first]...))
}

type sighting struct {
	key      string
	revision int64
	version  int64
}

type churnWatcher struct {
	seen   []sighting
	marker chan int64
	done   chan error
}

func (c *churner) startWatcher() *churnWatcher {
	w := &churnWatcher{marker: make(chan int64, 1), done: make(chan error, 1)}
	watching := c.t.client().Watch(clientv3.WithRequireLeader(c.t.ctx), c.t.prefix+"data/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	c.t.check("created", (<-watching).Created)
	go func() { w.done <- w.follow(watching) }()
	return w
}

// follow checks each event against the one before: no gap and no duplicate by the version of the key, no reordering
// by the revision.
func (w *churnWatcher) follow(watching clientv3.WatchChan) error {
	versions := map[string]int64{}
	var last int64
	for response := range watching {
		if err := response.Err(); err != nil {
			return err
		}
		for i, event := range response.Events {
			if err := w.take(event, versions, &last, i == 0); err != nil {
				return err
			}
			if string(event.Kv.Value) == "the end" {
				w.marker <- event.Kv.ModRevision
				return nil
			}
		}
	}
	return fmt.Errorf("the watch ended")
}

func (w *churnWatcher) take(event *clientv3.Event, versions map[string]int64, last *int64, first bool) error {
	key, revision := string(event.Kv.Key), event.Kv.ModRevision
	if revision < *last || (first && revision == *last) {
		return fmt.Errorf("revision %d of %s after %d", revision, key, *last)
	}
	if event.Kv.Version != versions[key]+1 {
		return fmt.Errorf("version %d of %s after %d, at revision %d", event.Kv.Version, key, versions[key], revision)
	}
	versions[key], *last = event.Kv.Version, revision
	w.seen = append(w.seen, sighting{key: key, revision: revision, version: event.Kv.Version})
	return nil
}

func (w *churnWatcher) finish(t *T, i int, marker int64) {
	select {
	case err := <-w.done:
		t.noError(fmt.Sprint("watcher ", i), err)
		eq(t, "the marker's revision", <-w.marker, marker)
	case <-time.After(60 * time.Second):
		t.fail("watcher %d did not reach revision %d", i, marker)
	}
}

func (c *churner) judge(watchers []*churnWatcher, kvs []*mvccpb.KeyValue) {
	first := watchers[0]
	for i, watcher := range watchers[1:] {
		eq(c.t, fmt.Sprintf("events of watcher %d", i+1), len(watcher.seen), len(first.seen))
		for n, one := range watcher.seen {
			eq(c.t, fmt.Sprintf("event %d of watcher %d", n, i+1), one, first.seen[n])
		}
	}
	revisions, versions := map[int64]bool{}, map[string]int64{}
	for _, one := range first.seen {
		revisions[one.revision], versions[one.key] = true, one.version
	}
	for i, acknowledged := range c.acknowledged {
		for revision := range acknowledged {
			c.t.check(fmt.Sprintf("the write of writer %d at revision %d was acknowledged and not seen", i, revision), revisions[revision])
		}
	}
	for _, kv := range kvs {
		if seen, watched := versions[string(kv.Key)]; watched {
			eq(c.t, "version of "+string(kv.Key), kv.Version, seen)
		}
	}
}

type churnSession struct {
	session *concurrency.Session
	key     string
	created int64
}

func (c *churner) openSessions() []churnSession {
	var sessions []churnSession
	for i := range c.t.s.churn.sessions {
		client := c.t.clientFor(i)
		session := c.t.session(client, sessionSeconds)
		key := fmt.Sprintf("%ssession/%03d", c.t.prefix, i)
		answer, err := client.Put(c.t.ctx, key, "alive", clientv3.WithLease(session.Lease()))
		c.t.noError("session", err)
		sessions = append(sessions, churnSession{session: session, key: key, created: answer.Header.Revision})
	}
	return sessions
}

func (c *churner) judgeSession(i int, s churnSession) {
	select {
	case <-s.session.Done():
		c.t.fail("session %d was lost", i)
	default:
	}
	found, err := s.session.Client().Get(c.t.ctx, s.key)
	c.t.noError("get", err)
	eq(c.t, fmt.Sprintf("key of session %d", i), found.Count, 1)
	eq(c.t, fmt.Sprintf("create revision of session %d", i), found.Kvs[0].CreateRevision, s.created)
}

// killLeaders ends the leader and starts it again, as long as the run goes.
func (c *churner) killLeaders() {
	for {
		pause(c.stop, c.t.s.churn.killEvery)
		if c.stop.Err() != nil {
			return
		}
		leader := c.t.leader()
		c.t.control("kill", leader)
		c.kills++
		pause(c.t.ctx, time.Second)
		c.t.control("start", leader)
	}
}
