package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func recipeScenarios() []scenario { return slices.Concat(concurrencyScenarios, clientScenarios) }

var concurrencyScenarios = []scenario{
	{name: "session/outlives-its-ttl-while-it-is-kept", run: sessionKept},
	{name: "session/close-takes-its-keys-along", run: sessionClosed},
	{name: "session/ends-when-its-lease-is-revoked", run: sessionRevoked},
	{name: "session/an-orphan-expires", run: sessionOrphan},
	{name: "mutex/eight-contenders-exclude-each-other", run: mutexExcludes},
	{name: "mutex/fencing-tokens-ascend", run: mutexFencing},
	{name: "mutex/try-lock", run: mutexTryLock},
	{name: "mutex/a-canceled-wait-frees-its-place", run: mutexCanceled},
	{name: "mutex/a-lost-session-frees-the-lock", run: mutexLostSession},
	{name: "election/campaign-observe-resign-resume", run: electionRecipe},
	{name: "election/eight-candidates-lead-one-after-the-other", run: electionCandidates},
	{name: "election/observers-end-at-the-last-leader", run: electionObservers},
	{name: "stm/bank-transfers-keep-the-sum-serializable-snapshot", run: func(t *T) { stmBank(t, concurrency.SerializableSnapshot) }},
	{name: "stm/bank-transfers-keep-the-sum-serializable", run: func(t *T) { stmBank(t, concurrency.Serializable) }},
	{name: "stm/bank-transfers-keep-the-sum-repeatable-reads", run: func(t *T) { stmBank(t, concurrency.RepeatableReads) }},
	{name: "stm/read-committed-writes-all-or-nothing", run: stmReadCommitted},
	{name: "stm/an-aborted-function-writes-nothing", run: stmAbort},
}

func (t *T) session(client *clientv3.Client, seconds int) *concurrency.Session {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(seconds), concurrency.WithContext(t.ctx))
	t.noError("session", err)
	t.atEnd(func() { _ = session.Close() })
	return session
}

func sessionKept(t *T) {
	client := t.client()
	session := t.session(client, 2)
	_, err := client.Put(t.ctx, t.prefix+"a", "x", clientv3.WithLease(session.Lease()))
	t.noError("put", err)
	select {
	case <-session.Done():
		t.fail("the session ended")
	case <-time.After(8 * time.Second):
	}
	found, err := client.Get(t.ctx, t.prefix+"a")
	t.noError("get", err)
	eq(t, "its key", found.Count, 1)
}

func sessionClosed(t *T) {
	client := t.client()
	session := t.session(client, 30)
	_, err := client.Put(t.ctx, t.prefix+"a", "x", clientv3.WithLease(session.Lease()))
	t.noError("put", err)
	t.noError("close", session.Close())
	<-session.Done()
	found, err := client.Get(t.ctx, t.prefix+"a")
	t.noError("get", err)
	eq(t, "its key", found.Count, 0)
}

func sessionRevoked(t *T) {
	client, other := t.client(), t.client()
	session := t.session(client, 3)
	_, err := other.Revoke(t.ctx, session.Lease())
	t.noError("revoke", err)
	select {
	case <-session.Done():
	case <-time.After(answerLimit):
		t.fail("the session goes on without its lease")
	}
}

func sessionOrphan(t *T) {
	client := t.client()
	session := t.session(client, 2)
	_, err := client.Put(t.ctx, t.prefix+"a", "x", clientv3.WithLease(session.Lease()))
	t.noError("put", err)
	watching := client.Watch(t.ctx, t.prefix+"a")
	session.Orphan()
	select {
	case response := <-watching:
		eq(t, "event", response.Events[0].Type, clientv3.EventTypeDelete)
	case <-time.After(30 * time.Second):
		t.fail("the orphan's key stays")
	}
}

func mutexExcludes(t *T) {
	const contenders, rounds = 8, 6
	var inside, entered int
	var mu sync.Mutex
	t.together(contenders, func(i int) error {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{t.s.endpoints[i%len(t.s.endpoints)]}, DialTimeout: 10 * time.Second})
		if err != nil {
			return err
		}
		defer client.Close()
		session, err := concurrency.NewSession(client, concurrency.WithTTL(30))
		if err != nil {
			return err
		}
		defer session.Close()
		for range rounds {
			mutex := concurrency.NewMutex(session, t.prefix+"lock")
			if err := mutex.Lock(t.ctx); err != nil {
				return err
			}
			mu.Lock()
			inside, entered = inside+1, entered+1
			now := inside
			mu.Unlock()
			if now != 1 {
				return fmt.Errorf("%d hold the lock", now)
			}
			time.Sleep(time.Millisecond) // Long enough for another one to come in, if it could.
			mu.Lock()
			inside--
			mu.Unlock()
			if err := mutex.Unlock(t.ctx); err != nil {
				return err
			}
		}
		return nil
	})
	eq(t, "entered", entered, contenders*rounds)
}

// mutexFencing: the create revision of the owner's key is the token, and a write that is guarded by it succeeds for
// the owner alone.
func mutexFencing(t *T) {
	const contenders, rounds = 8, 3
	client := t.client()
	var mu sync.Mutex
	var tokens []int64
	t.together(contenders, func(int) error {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(30))
		if err != nil {
			return err
		}
		defer session.Close()
		for range rounds {
			mutex := concurrency.NewMutex(session, t.prefix+"lock")
			if err := mutex.Lock(t.ctx); err != nil {
				return err
			}
			owner, err := client.Get(t.ctx, mutex.Key())
			if err != nil {
				return err
			}
			mu.Lock()
			tokens = append(tokens, owner.Kvs[0].CreateRevision)
			mu.Unlock()
			guarded, err := client.Txn(t.ctx).If(mutex.IsOwner()).Then(clientv3.OpPut(t.prefix+"guarded", "x")).Commit()
			if err != nil {
				return err
			}
			if !guarded.Succeeded {
				return errors.New("the owner's guarded write was refused")
			}
			if err := mutex.Unlock(t.ctx); err != nil {
				return err
			}
			late, err := client.Txn(t.ctx).If(clientv3.Compare(clientv3.CreateRevision(string(owner.Kvs[0].Key)), "=", owner.Kvs[0].CreateRevision)).
				Then(clientv3.OpPut(t.prefix+"guarded", "late")).Commit()
			if err != nil {
				return err
			}
			if late.Succeeded {
				return errors.New("a former owner's guarded write was taken")
			}
		}
		return nil
	})
	eq(t, "tokens", len(tokens), contenders*rounds)
	t.check(fmt.Sprint("tokens ascend: ", tokens), slices.IsSorted(tokens) && len(slices.Compact(tokens)) == contenders*rounds)
}

func mutexTryLock(t *T) {
	client := t.client()
	first := concurrency.NewMutex(t.session(client, 30), t.prefix+"lock")
	second := concurrency.NewMutex(t.session(client, 30), t.prefix+"lock")
	t.noError("try lock", first.TryLock(t.ctx))
	eq(t, "second", second.TryLock(t.ctx), concurrency.ErrLocked)
	t.noError("unlock", first.Unlock(t.ctx))
	t.noError("try lock", second.TryLock(t.ctx))
	eq(t, "first", first.TryLock(t.ctx), concurrency.ErrLocked)
	t.noError("unlock", second.Unlock(t.ctx))
	found, err := client.Get(t.ctx, t.prefix, clientv3.WithPrefix())
	t.noError("get", err)
	eq(t, "left behind", found.Count, 0)
}

func mutexCanceled(t *T) {
	client := t.client()
	first := concurrency.NewMutex(t.session(client, 30), t.prefix+"lock")
	second := concurrency.NewMutex(t.session(client, 30), t.prefix+"lock")
	t.noError("lock", first.Lock(t.ctx))
	ctx, cancel := context.WithTimeout(t.ctx, 300*time.Millisecond)
	defer cancel()
	t.check("deadline", errors.Is(second.Lock(ctx), context.DeadlineExceeded))
	found, err := client.Get(t.ctx, t.prefix, clientv3.WithPrefix())
	t.noError("get", err)
	eq(t, "keys", found.Count, 1)
	t.noError("unlock", first.Unlock(t.ctx))
}

func mutexLostSession(t *T) {
	client := t.client()
	session := t.session(client, 30)
	first := concurrency.NewMutex(session, t.prefix+"lock")
	second := concurrency.NewMutex(t.session(client, 30), t.prefix+"lock")
	t.noError("lock", first.Lock(t.ctx))
	_, err := client.Revoke(t.ctx, session.Lease())
	t.noError("revoke", err)
	t.noError("the next one", second.Lock(t.ctx))
	guarded, err := client.Txn(t.ctx).If(first.IsOwner()).Then(clientv3.OpPut(t.prefix+"guarded", "x")).Commit()
	t.noError("txn", err)
	eq(t, "the former owner's guarded write", guarded.Succeeded, false)
}

func electionRecipe(t *T) {
	client, other := t.client(), t.client()
	session := t.session(client, 30)
	observed := concurrency.NewElection(t.session(other, 30), t.prefix+"e").Observe(t.ctx)
	see := func(want string) {
		select {
		case response := <-observed:
			eq(t, "observed", string(response.Kvs[0].Value), want)
		case <-time.After(answerLimit):
			t.fail("%q was not observed", want)
		}
	}
	election := concurrency.NewElection(session, t.prefix+"e")
	t.noError("campaign", election.Campaign(t.ctx, "one"))
	see("one")
	t.noError("proclaim", election.Proclaim(t.ctx, "two"))
	see("two")
	resumed := concurrency.ResumeElection(session, t.prefix+"e", election.Key(), election.Rev())
	t.noError("proclaim", resumed.Proclaim(t.ctx, "three"))
	see("three")
	leader, err := resumed.Leader(t.ctx)
	t.noError("leader", err)
	eq(t, "create revision", leader.Kvs[0].CreateRevision, election.Rev())
	t.noError("resign", resumed.Resign(t.ctx))
	_, err = resumed.Leader(t.ctx)
	eq(t, "no leader", err, concurrency.ErrElectionNoLeader)
	eq(t, "a former leader", election.Proclaim(t.ctx, "four"), concurrency.ErrElectionNotLeader)
}

func electionCandidates(t *T) {
	client := t.client()
	var mu sync.Mutex
	var terms []int64
	leaders := 0
	t.together(8, func(i int) error {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(30))
		if err != nil {
			return err
		}
		defer session.Close()
		election := concurrency.NewElection(session, t.prefix+"e")
		if err := election.Campaign(t.ctx, strconv.Itoa(i)); err != nil {
			return err
		}
		mu.Lock()
		leaders++
		now := leaders
		terms = append(terms, election.Rev())
		mu.Unlock()
		if now != 1 {
			return fmt.Errorf("%d lead", now)
		}
		leader, err := election.Leader(t.ctx)
		if err != nil {
			return err
		}
		if string(leader.Kvs[0].Value) != strconv.Itoa(i) {
			return fmt.Errorf("%d leads and reads %q", i, leader.Kvs[0].Value)
		}
		mu.Lock()
		leaders--
		mu.Unlock()
		return election.Resign(t.ctx)
	})
	t.check(fmt.Sprint("terms ascend: ", terms), len(terms) == 8 && slices.IsSorted(terms))
}

func electionObservers(t *T) {
	client := t.client()
	const terms = 5
	var group sync.WaitGroup
	last := make([]string, 4)
	for i := range last {
		observer := concurrency.NewElection(t.session(client, 30), t.prefix+"e").Observe(t.ctx)
		group.Add(1)
		go func() {
			defer group.Done()
			for response := range observer {
				last[i] = string(response.Kvs[0].Value)
				if last[i] == strconv.Itoa(terms-1) {
					return
				}
			}
		}()
	}
	for term := range terms {
		election := concurrency.NewElection(t.session(client, 30), t.prefix+"e")
		t.noError("campaign", election.Campaign(t.ctx, strconv.Itoa(term)))
		if term < terms-1 {
			t.noError("resign", election.Resign(t.ctx))
		}
	}
	group.Wait()
	for _, value := range last {
		eq(t, "the last one observed", value, strconv.Itoa(terms-1))
	}
}

func stmBank(t *T, level concurrency.Isolation) {
	const accounts, transfers, each = 5, 15, 100
	// One member: its reads are serializable ones at a revision, which another member may not have reached yet.
	client := t.clientOf(t.s.endpoints[:1])
	key := func(i int) string { return fmt.Sprintf("%saccount%d", t.prefix, i) }
	for i := range accounts {
		_, err := client.Put(t.ctx, key(i), strconv.Itoa(each))
		t.noError("put", err)
	}
	move := func(from, to, amount int) func(concurrency.STM) error {
		return func(stm concurrency.STM) error {
			a, err := strconv.Atoi(stm.Get(key(from)))
			if err != nil {
				return err
			}
			b, err := strconv.Atoi(stm.Get(key(to)))
			if err != nil {
				return err
			}
			stm.Put(key(from), strconv.Itoa(a-amount))
			stm.Put(key(to), strconv.Itoa(b+amount))
			return nil
		}
	}
	t.together(4, func(int) error {
		for range transfers {
			from := rand.IntN(accounts)
			to := (from + 1 + rand.IntN(accounts-1)) % accounts
			_, err := concurrency.NewSTM(client, move(from, to, rand.IntN(10)), concurrency.WithIsolation(level), concurrency.WithAbortContext(t.ctx))
			if err != nil {
				return err
			}
		}
		return nil
	})
	found, err := client.Get(t.ctx, t.prefix+"account", clientv3.WithPrefix())
	t.noError("get", err)
	sum, writes := 0, int64(0)
	for _, kv := range found.Kvs {
		amount, err := strconv.Atoi(string(kv.Value))
		t.noError("amount", err)
		sum, writes = sum+amount, writes+kv.Version-1
	}
	eq(t, "sum", sum, accounts*each)
	eq(t, "each transfer wrote two accounts, once", writes, 4*transfers*2)
}

func stmReadCommitted(t *T) {
	client := t.client()
	t.together(4, func(i int) error {
		for round := range 10 {
			_, err := concurrency.NewSTM(client, func(stm concurrency.STM) error {
				stm.Put(t.prefix+"a", fmt.Sprint(i, round))
				stm.Put(t.prefix+"b", fmt.Sprint(i, round))
				return nil
			}, concurrency.WithIsolation(concurrency.ReadCommitted))
			if err != nil {
				return err
			}
		}
		return nil
	})
	found, err := client.Get(t.ctx, t.prefix, clientv3.WithPrefix())
	t.noError("get", err)
	eq(t, "both were written by one", string(found.Kvs[0].Value), string(found.Kvs[1].Value))
	eq(t, "in one revision", found.Kvs[0].ModRevision, found.Kvs[1].ModRevision)
	eq(t, "version", found.Kvs[0].Version, 40)
}

func stmAbort(t *T) {
	client := t.client()
	failed := errors.New("no")
	_, err := concurrency.NewSTM(client, func(stm concurrency.STM) error {
		stm.Put(t.prefix+"a", "x")
		return failed
	})
	eq(t, "error", err, failed)
	found, err := client.Get(t.ctx, t.prefix, clientv3.WithPrefix())
	t.noError("get", err)
	eq(t, "written", found.Count, 0)
}
