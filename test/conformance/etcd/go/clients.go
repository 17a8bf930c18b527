package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/client/v3/leasing"
	"go.etcd.io/etcd/client/v3/mirror"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/ordering"
	"go.uber.org/zap"
)

var clientScenarios = []scenario{
	{name: "client/errors-are-restored-from-their-texts", run: clientErrors},
	{name: "client/keep-alive-outlives-the-ttl", run: clientKeepAlive},
	{name: "client/keep-alive-ends-with-the-lease", run: clientKeepAliveEnds},
	{name: "client/many-watches-share-a-stream", run: clientWatches},
	{name: "client/progress-requests", run: clientProgress},
	{name: "client/fragments-are-merged", run: clientFragments},
	{name: "client/a-compacted-watch-tells-the-point", run: clientCompacted, alone: true},
	{name: "client/sync-finds-members-that-can-be-dialled", run: clientSync},
	{name: "client/snapshot-and-its-sum", run: clientSnapshot},
	{name: "client/status-hash-and-alarms", run: clientMaintenance},
	{name: "namespace/keys-watches-and-leases-below-a-prefix", run: clientNamespace},
	{name: "ordering/reads-do-not-go-back", run: clientOrdering},
	{name: "mirror/base-and-updates", run: clientMirror},
	{name: "leasing/cached-reads-see-writes", run: clientLeasing},
	{name: "kubernetes/optimistic-put-delete-list-and-count", run: clientKubernetes},
	{name: "client/watches-survive-each-member's-restart", run: clientReconnect, needs: "control"},
	{name: "client/sessions-and-locks-survive-a-killed-leader", run: clientSessionKill, needs: "control"},
}

func clientErrors(t *T) {
	client := t.client()
	is := func(what string, err error, want error) {
		var typed rpctypes.EtcdError
		t.check(fmt.Sprintf("%s: %v is not typed", what, err), errors.As(err, &typed))
		eq(t, what, err, want)
	}
	_, err := client.Put(t.ctx, "", "x")
	is("empty key", err, rpctypes.ErrEmptyKey)
	_, err = client.Put(t.ctx, t.prefix+"a", "", clientv3.WithIgnoreValue())
	is("ignore value", err, rpctypes.ErrKeyNotFound)
	_, err = client.Put(t.ctx, t.prefix+"a", "x", clientv3.WithLease(4711))
	is("lease", err, rpctypes.ErrLeaseNotFound)
	_, err = client.Revoke(t.ctx, 4711)
	is("revoke", err, rpctypes.ErrLeaseNotFound)
	_, err = client.Grant(t.ctx, 9_000_000_001)
	is("grant", err, rpctypes.ErrLeaseTTLTooLarge)
	_, err = client.Get(t.ctx, t.prefix+"a", clientv3.WithRev(1<<40))
	is("future", err, rpctypes.ErrFutureRev)
	_, err = client.Compact(t.ctx, 1<<40)
	is("compact", err, rpctypes.ErrFutureRev)
	put := clientv3.OpPut(t.prefix+"a", "x")
	_, err = client.Txn(t.ctx).Then(put, put).Commit()
	is("duplicate", err, rpctypes.ErrDuplicateKey)
	_, err = client.Txn(t.ctx).Then(slices.Repeat([]clientv3.Op{clientv3.OpGet("a")}, 129)...).Commit()
	is("too many", err, rpctypes.ErrTooManyOps)
	_, err = client.Put(t.ctx, t.prefix+"a", string(make([]byte, 1600*1024)))
	is("too large", err, rpctypes.ErrRequestTooLarge)
	_, err = client.MemberRemove(t.ctx, 4711)
	is("member", err, rpctypes.ErrMemberNotFound)
	_, err = client.KeepAliveOnce(t.ctx, 4711)
	is("keep alive", err, rpctypes.ErrLeaseNotFound)
}

func clientKeepAlive(t *T) {
	client := t.client()
	granted, err := client.Grant(t.ctx, 3)
	t.noError("grant", err)
	_, err = client.Put(t.ctx, t.prefix+"a", "x", clientv3.WithLease(granted.ID))
	t.noError("put", err)
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	answers, err := client.KeepAlive(ctx, granted.ID)
	t.noError("keep alive", err)
	count := 0
	for end := time.After(9 * time.Second); ; {
		select {
		case answer := <-answers:
			t.check("still alive", answer != nil)
			eq(t, "ttl", answer.TTL, granted.TTL)
			count++
			continue
		case <-end:
		}
		break
	}
	t.check(fmt.Sprintf("%d renewals", count), count >= 5)
	found, err := client.Get(t.ctx, t.prefix+"a")
	t.noError("get", err)
	eq(t, "its key", found.Count, 1)
	_, err = client.Revoke(t.ctx, granted.ID)
	t.noError("revoke", err)
}

func clientKeepAliveEnds(t *T) {
	client, other := t.client(), t.client()
	granted, err := client.Grant(t.ctx, 3)
	t.noError("grant", err)
	answers, err := client.KeepAlive(t.ctx, granted.ID)
	t.noError("keep alive", err)
	<-answers
	_, err = other.Revoke(t.ctx, granted.ID)
	t.noError("revoke", err)
	for end := time.After(answerLimit); ; {
		select {
		case _, open := <-answers:
			if !open {
				return
			}
		case <-end:
			t.fail("the channel of a revoked lease stays open")
		}
	}
}

func clientWatches(t *T) {
	client := t.client()
	var channels []clientv3.WatchChan
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	for i := range 50 {
		channels = append(channels, client.Watch(ctx, fmt.Sprintf("%s%d/", t.prefix, i), clientv3.WithPrefix(), clientv3.WithCreatedNotify()))
	}
	for _, channel := range channels {
		t.check("created", (<-channel).Created)
	}
	for i := range channels {
		_, err := client.Put(t.ctx, fmt.Sprintf("%s%d/x", t.prefix, i), fmt.Sprint(i))
		t.noError("put", err)
	}
	for i, channel := range channels {
		response := <-channel
		eq(t, "events", len(response.Events), 1)
		eq(t, "value", string(response.Events[0].Kv.Value), fmt.Sprint(i))
	}
	cancel()
	for _, channel := range channels {
		for range channel {
		}
	}
}

func clientProgress(t *T) {
	client := t.client()
	watching := client.Watch(t.ctx, t.prefix+"a", clientv3.WithCreatedNotify())
	t.check("created", (<-watching).Created)
	written, err := client.Put(t.ctx, t.prefix+"other", "x")
	t.noError("put", err)
	for {
		t.noError("request", client.RequestProgress(t.ctx))
		select {
		case response := <-watching:
			t.check("progress", response.IsProgressNotify())
			if response.Header.Revision >= written.Header.Revision {
				return
			}
		case <-time.After(200 * time.Millisecond):
			t.noError("in time", t.ctx.Err())
		}
	}
}

func clientFragments(t *T) {
	remove := t.bigRevision(12, 300*1024)
	// The member that was written through: another one may not have applied it yet, and would tell that too.
	client := t.clientOf(t.s.endpoints[:1])
	watching := client.Watch(t.ctx, t.prefix+"big", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithFragment(), clientv3.WithCreatedNotify())
	t.check("created", (<-watching).Created)
	revision := remove()
	response := <-watching
	t.noError("watch", response.Err())
	eq(t, "events", len(response.Events), 12)
	for _, event := range response.Events {
		eq(t, "revision", event.Kv.ModRevision, revision)
		eq(t, "bytes of prev_kv", len(event.PrevKv.Value), 300*1024)
	}
}

func clientCompacted(t *T) {
	// The member that was compacted through: another one may not have applied it yet.
	client := t.clientOf(t.s.endpoints[:1])
	from := t.put("a", "1").Header.Revision
	point := t.put("a", "2").Header.Revision
	t.compact(point)
	response := <-client.Watch(t.ctx, t.prefix+"a", clientv3.WithRev(from))
	eq(t, "compact revision", response.CompactRevision, point)
	eq(t, "error", response.Err(), rpctypes.ErrCompacted)
	_, err := client.Get(t.ctx, t.prefix+"a", clientv3.WithRev(from))
	eq(t, "get", err, rpctypes.ErrCompacted)
	response = <-client.Watch(t.ctx, t.prefix+"a", clientv3.WithRev(response.CompactRevision))
	eq(t, "resumed", string(response.Events[0].Kv.Value), "2")
}

func clientSync(t *T) {
	client := t.clientOf(t.s.endpoints[:1])
	t.noError("sync", client.Sync(t.ctx))
	endpoints := client.Endpoints()
	eq(t, "endpoints", len(endpoints), len(t.s.endpoints))
	for _, endpoint := range endpoints {
		parsed, err := url.Parse(endpoint)
		t.noError("endpoint", err)
		t.check(endpoint+" is one of the members", slices.Contains(t.s.endpoints, parsed.Host))
		status, err := client.Status(t.ctx, endpoint)
		t.noError("status", err)
		t.check("member", status.Header.MemberId != 0)
	}
	_, err := client.Put(t.ctx, t.prefix+"a", "x")
	t.noError("put", err)
}

func clientSnapshot(t *T) {
	reader, err := t.client().Snapshot(t.ctx)
	t.noError("snapshot", err)
	defer reader.Close()
	all, err := io.ReadAll(reader)
	t.noError("read", err)
	sum := sha256.Sum256(all[:len(all)-sha256.Size])
	t.check("sum", bytes.Equal(sum[:], all[len(all)-sha256.Size:]))
	eq(t, "length of a snapshot with its sum", len(all)%512, sha256.Size)
}

func clientMaintenance(t *T) {
	client := t.client()
	for _, endpoint := range t.s.endpoints {
		hash, err := client.HashKV(t.ctx, endpoint, 0)
		t.noError("hashkv", err)
		t.check("revision", hash.HashRevision > 0)
		_, err = client.Defragment(t.ctx, endpoint)
		t.noError("defragment", err)
	}
	alarms, err := client.AlarmList(t.ctx)
	t.noError("alarms", err)
	eq(t, "alarms", len(alarms.Alarms), 0)
}

func clientNamespace(t *T) {
	client := t.client()
	kv := namespace.NewKV(client.KV, t.prefix+"ns/")
	watcher := namespace.NewWatcher(client.Watcher, t.prefix+"ns/")
	lease := namespace.NewLease(client.Lease, t.prefix+"ns/")
	watching := watcher.Watch(t.ctx, "", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	t.check("created", (<-watching).Created)
	granted, err := lease.Grant(t.ctx, 60)
	t.noError("grant", err)
	_, err = kv.Put(t.ctx, "a", "1", clientv3.WithLease(granted.ID))
	t.noError("put", err)
	eq(t, "watched", string((<-watching).Events[0].Kv.Key), "a")
	outside, err := client.Get(t.ctx, t.prefix+"ns/a")
	t.noError("get", err)
	eq(t, "outside", outside.Count, 1)
	left, err := lease.TimeToLive(t.ctx, granted.ID, clientv3.WithAttachedKeys())
	t.noError("time to live", err)
	eq(t, "attached", string(left.Keys[0]), "a")
	txn, err := kv.Txn(t.ctx).If(clientv3.Compare(clientv3.Version("a"), "=", 1)).
		Then(clientv3.OpGet("", clientv3.WithPrefix()), clientv3.OpDelete("", clientv3.WithFromKey())).Commit()
	t.noError("txn", err)
	eq(t, "succeeded", txn.Succeeded, true)
	eq(t, "key", string(txn.Responses[0].GetResponseRange().Kvs[0].Key), "a")
	_, err = lease.Revoke(t.ctx, granted.ID)
	t.noError("revoke", err)
}

func clientOrdering(t *T) {
	var violations int
	kv := ordering.NewKV(t.client().KV, func(clientv3.Op, clientv3.OpResponse, int64) error {
		violations++
		return nil
	})
	var last int64
	for i := range 50 {
		if i%10 == 0 {
			t.put("a", fmt.Sprint(i))
		}
		found, err := kv.Get(t.ctx, t.prefix+"a", clientv3.WithSerializable())
		t.noError("get", err)
		t.check("revision does not go back", found.Header.Revision >= last)
		last = found.Header.Revision
	}
}

func clientMirror(t *T) {
	const keys = 1500 // More than one page of the syncer.
	for first := 0; first < keys; first += 100 {
		var batch []clientv3.Op
		for i := range 100 {
			batch = append(batch, clientv3.OpPut(fmt.Sprintf("%s%05d", t.prefix, first+i), "x"))
		}
		_, err := t.clientOnce().Txn(t.ctx).Then(batch...).Commit()
		t.noError("txn", err)
	}
	syncer := mirror.NewSyncer(t.clientOnce(), t.prefix, 0)
	base, failed := syncer.SyncBase(t.ctx)
	seen := 0
	for page := range base {
		seen += len(page.Kvs)
	}
	t.noError("base", <-failed)
	eq(t, "base", seen, keys)
	t.put("update", "1")
	updates := syncer.SyncUpdates(t.ctx)
	t.put("update", "2")
	var values []string
	for len(values) < 2 {
		response := <-updates
		t.noError("updates", response.Err())
		for _, event := range response.Events {
			values = append(values, string(event.Kv.Value))
		}
	}
	eqSlice(t, "updates", values, []string{"1", "2"})
}

func clientLeasing(t *T) {
	client := t.client()
	first, closeFirst, err := leasing.NewKV(client, t.prefix+"leases/")
	t.noError("leasing", err)
	defer closeFirst()
	second, closeSecond, err := leasing.NewKV(t.client(), t.prefix+"leases/")
	t.noError("leasing", err)
	defer closeSecond()
	for i := range 10 {
		writer, reader := first, second
		if i%2 == 1 {
			writer, reader = second, first
		}
		_, err := writer.Put(t.ctx, t.prefix+"a", fmt.Sprint(i))
		t.noError("put", err)
		for range 3 {
			found, err := reader.Get(t.ctx, t.prefix+"a")
			t.noError("get", err)
			eq(t, "value", string(found.Kvs[0].Value), fmt.Sprint(i))
		}
	}
}

// clientKubernetes uses the calls that kube-apiserver makes.
func clientKubernetes(t *T) {
	client, err := kubernetes.New(clientv3.Config{Endpoints: t.s.endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	t.noError("client", err)
	defer client.Close()
	created, err := client.Kubernetes.OptimisticPut(t.ctx, t.prefix+"a", []byte("1"), 0, kubernetes.PutOptions{})
	t.noError("create", err)
	eq(t, "created", created.Succeeded, true)
	again, err := client.Kubernetes.OptimisticPut(t.ctx, t.prefix+"a", []byte("2"), 0, kubernetes.PutOptions{GetOnFailure: true})
	t.noError("create again", err)
	eq(t, "created twice", again.Succeeded, false)
	eq(t, "what is there", string(again.KV.Value), "1")
	updated, err := client.Kubernetes.OptimisticPut(t.ctx, t.prefix+"a", []byte("2"), created.Revision, kubernetes.PutOptions{})
	t.noError("update", err)
	eq(t, "updated", updated.Succeeded, true)
	for i := range 25 {
		_, err := client.Kubernetes.OptimisticPut(t.ctx, fmt.Sprintf("%sb/%02d", t.prefix, i), []byte("x"), 0, kubernetes.PutOptions{})
		t.noError("create", err)
	}
	var names []string
	options := kubernetes.ListOptions{Limit: 10}
	for {
		page, err := client.Kubernetes.List(t.ctx, t.prefix, options)
		t.noError("list", err)
		names = append(names, t.names(page.Kvs)...)
		if options.Continue == "" {
			eq(t, "count", page.Count, 26)
			options.Revision = page.Revision
			_, err := client.Kubernetes.OptimisticDelete(t.ctx, t.prefix+"b/20", created.Revision, kubernetes.DeleteOptions{})
			t.noError("a delete that loses", err)
			_, err = client.Put(t.ctx, t.prefix+"b/999", "later")
			t.noError("put", err)
		}
		if int64(len(page.Kvs)) == page.Count {
			break
		}
		options.Continue = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
	eq(t, "listed at one revision", len(names), 26)
	t.check("in order", slices.IsSorted(names))
	count, err := client.Kubernetes.Count(t.ctx, t.prefix+"b/", kubernetes.CountOptions{})
	t.noError("count", err)
	eq(t, "count", count, 26)
	lost, err := client.Kubernetes.OptimisticDelete(t.ctx, t.prefix+"a", created.Revision, kubernetes.DeleteOptions{GetOnFailure: true})
	t.noError("delete", err)
	eq(t, "deleted at an old revision", lost.Succeeded, false)
	eq(t, "what is there", lost.KV.ModRevision, updated.Revision)
	gone, err := client.Kubernetes.OptimisticDelete(t.ctx, t.prefix+"a", updated.Revision, kubernetes.DeleteOptions{})
	t.noError("delete", err)
	eq(t, "deleted", gone.Succeeded, true)
	found, err := client.Kubernetes.Get(t.ctx, t.prefix+"a", kubernetes.GetOptions{})
	t.noError("get", err)
	t.check("absent", found.KV == nil && found.Revision >= gone.Revision)
}

// clientReconnect ends each member in turn while somebody writes: the watch must see every version, once, in order.
func clientReconnect(t *T) {
	writer := t.client()
	watching := t.client().Watch(clientv3.WithRequireLeader(t.ctx), t.prefix+"a", clientv3.WithCreatedNotify())
	t.check("created", (<-watching).Created)
	stop, written := make(chan struct{}), make(chan int64, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				// The last one says so, and is written for certain.
				for t.ctx.Err() == nil {
					ctx, cancel := context.WithTimeout(t.ctx, 5*time.Second)
					answer, err := writer.Put(ctx, t.prefix+"a", "last")
					cancel()
					if err == nil {
						written <- answer.Header.Revision
						return
					}
				}
				return
			default:
			}
			ctx, cancel := context.WithTimeout(t.ctx, 5*time.Second)
			_, _ = writer.Put(ctx, t.prefix+"a", fmt.Sprint(i)) // One that fails may be there or not: versions tell.
			cancel()
		}
	}()
	// The client keeps what it is told until somebody takes it.
	for member := range t.s.endpoints {
		t.control("kill", member)
		pause(t.ctx, 300*time.Millisecond)
		t.control("start", member)
		t.writable()
	}
	close(stop)
	var version int64
	for response := range watching {
		t.noError("watch", response.Err())
		for _, event := range response.Events {
			eq(t, "version", event.Kv.Version, version+1)
			version = event.Kv.Version
			if string(event.Kv.Value) == "last" {
				eq(t, "one last", event.Kv.ModRevision <= <-written, true)
				return
			}
		}
	}
	t.fail("the watch ended")
}

func clientSessionKill(t *T) {
	client := t.client()
	session := t.session(client, 10)
	ephemeral := t.prefix + "ephemeral"
	created, err := client.Put(t.ctx, ephemeral, "x", clientv3.WithLease(session.Lease()))
	t.noError("put", err)
	for range 2 {
		leader := t.leader()
		t.control("kill", leader)
		// Longer than an election, shorter than the session.
		pause(t.ctx, 3*time.Second)
		t.control("start", leader)
		t.writable()
	}
	pause(t.ctx, 6*time.Second)
	select {
	case <-session.Done():
		t.fail("the session was lost")
	default:
	}
	found, err := client.Get(t.ctx, ephemeral)
	t.noError("get", err)
	eq(t, "count", found.Count, 1)
	eq(t, "create revision", found.Kvs[0].CreateRevision, created.Header.Revision)
}
