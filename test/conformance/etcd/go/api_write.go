package main

import (
	"bytes"
	"fmt"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
)

const (
	textLeaseNotFound = "etcdserver: requested lease not found"
	textValueProvided = "etcdserver: value is provided"
	textLeaseProvided = "etcdserver: lease is provided"
	textTooLarge      = "etcdserver: request is too large"
)

var writeScenarios = []scenario{
	{name: "put/each-write-is-one-revision", run: putRevisions},
	{name: "put/create-revision-mod-revision-and-version", run: putMetadata},
	{name: "put/empty-key-is-refused", run: putEmptyKey},
	{name: "put/prev-kv", run: putPrevKv},
	{name: "put/ignore-value", run: putIgnoreValue},
	{name: "put/ignore-lease", run: putIgnoreLease},
	{name: "put/unknown-lease-is-refused", run: putUnknownLease},
	{name: "put/without-a-lease-detaches", run: putDetaches},
	{name: "put/moves-a-key-between-leases", run: putMovesLease},
	{name: "put/a-value-of-one-mebibyte", run: putLarge},
	{name: "put/a-larger-request-is-refused", run: putTooLarge},
	{name: "put/a-key-of-four-kibibytes", run: putLongKey},
	{name: "delete/nothing-found-uses-no-revision", run: deleteNothing},
	{name: "delete/range-is-one-revision", run: deleteRange},
	{name: "delete/prev-kvs-come-in-key-order", run: deletePrevKvs},
	{name: "delete/empty-key-is-refused", run: deleteEmptyKey},
	{name: "delete/end-not-above-key-deletes-nothing", run: deleteInverted},
	{name: "delete/a-thousand-keys", run: deleteMany},
	{name: "write/one-compare-and-swap-wins-each-revision", run: casContenders},
	{name: "write/on-every-member", run: writeEverywhere},
}

func putRevisions(t *T) {
	t.undisturbed("two puts use two revisions", func() bool {
		first := t.put("a", "1").Header.Revision
		second := t.put("a", "1").Header.Revision
		t.check("revisions ascend", second > first)
		return second == first+1
	})
	written := t.put("b", "x")
	kv := t.one("b")
	eq(t, "mod_revision is the revision of the answer", kv.ModRevision, written.Header.Revision)
	t.check("no prev_kv unless asked", written.PrevKv == nil)
}

func putMetadata(t *T) {
	created := t.put("a", "1").Header.Revision
	t.put("a", "2")
	last := t.put("a", "3").Header.Revision
	a := t.one("a")
	eqSlice(t, "create, mod, version", []int64{a.CreateRevision, a.ModRevision, a.Version}, []int64{created, last, 3})
	eqBytes(t, "key", a.Key, t.key("a"))
	eqBytes(t, "value", a.Value, []byte("3"))
	eq(t, "lease", a.Lease, 0)
}

func putEmptyKey(t *T) {
	_, err := t.kv().Put(t.ctx, &pb.PutRequest{Value: []byte("x")})
	t.refused(err, codes.InvalidArgument, textEmptyKey)
}

func putPrevKv(t *T) {
	first := t.putOf(&pb.PutRequest{Key: t.key("a"), Value: []byte("1"), PrevKv: true})
	t.check("no previous state", first.PrevKv == nil)
	second := t.putOf(&pb.PutRequest{Key: t.key("a"), Value: []byte("2"), PrevKv: true})
	eqBytes(t, "previous value", second.PrevKv.Value, []byte("1"))
	eq(t, "previous mod_revision", second.PrevKv.ModRevision, first.Header.Revision)
	eq(t, "previous version", second.PrevKv.Version, 1)
}

func putIgnoreValue(t *T) {
	_, err := t.kv().Put(t.ctx, &pb.PutRequest{Key: t.key("a"), IgnoreValue: true})
	t.refused(err, codes.InvalidArgument, textKeyNotFound)
	_, err = t.kv().Put(t.ctx, &pb.PutRequest{Key: t.key("a"), Value: []byte("x"), IgnoreValue: true})
	t.refused(err, codes.InvalidArgument, textValueProvided)
	t.put("a", "kept")
	lease := t.grant(60)
	t.putOf(&pb.PutRequest{Key: t.key("a"), IgnoreValue: true, Lease: lease})
	a := t.one("a")
	eqBytes(t, "value", a.Value, []byte("kept"))
	eq(t, "lease", a.Lease, lease)
	eq(t, "version", a.Version, 2)
}

func putIgnoreLease(t *T) {
	_, err := t.kv().Put(t.ctx, &pb.PutRequest{Key: t.key("a"), Value: []byte("x"), IgnoreLease: true})
	t.refused(err, codes.InvalidArgument, textKeyNotFound)
	lease := t.grant(60)
	_, err = t.kv().Put(t.ctx, &pb.PutRequest{Key: t.key("a"), IgnoreLease: true, Lease: lease})
	t.refused(err, codes.InvalidArgument, textLeaseProvided)
	t.putOf(&pb.PutRequest{Key: t.key("a"), Value: []byte("1"), Lease: lease})
	t.putOf(&pb.PutRequest{Key: t.key("a"), Value: []byte("2"), IgnoreLease: true})
	a := t.one("a")
	eqBytes(t, "value", a.Value, []byte("2"))
	eq(t, "lease", a.Lease, lease)
	_, err = t.lease().LeaseRevoke(t.ctx, &pb.LeaseRevokeRequest{ID: lease})
	t.noError("revoke", err)
	t.check("the key goes with its lease", t.one("a") == nil)
}

func putUnknownLease(t *T) {
	_, err := t.kv().Put(t.ctx, &pb.PutRequest{Key: t.key("a"), Value: []byte("x"), Lease: 77_777_777})
	t.refused(err, codes.NotFound, textLeaseNotFound)
	t.check("nothing written", t.one("a") == nil)
}

func putDetaches(t *T) {
	lease := t.grant(60)
	t.putOf(&pb.PutRequest{Key: t.key("a"), Value: []byte("1"), Lease: lease})
	eq(t, "lease", t.one("a").Lease, lease)
	t.put("a", "2")
	eq(t, "lease", t.one("a").Lease, 0)
	_, err := t.lease().LeaseRevoke(t.ctx, &pb.LeaseRevokeRequest{ID: lease})
	t.noError("revoke", err)
	eqBytes(t, "the key stays", t.one("a").Value, []byte("2"))
}

func putMovesLease(t *T) {
	first, second := t.grant(60), t.grant(60)
	t.putOf(&pb.PutRequest{Key: t.key("a"), Value: []byte("1"), Lease: first})
	t.putOf(&pb.PutRequest{Key: t.key("a"), Value: []byte("2"), Lease: second})
	_, err := t.lease().LeaseRevoke(t.ctx, &pb.LeaseRevokeRequest{ID: first})
	t.noError("revoke", err)
	eq(t, "lease", t.one("a").Lease, second)
	_, err = t.lease().LeaseRevoke(t.ctx, &pb.LeaseRevokeRequest{ID: second})
	t.noError("revoke", err)
	t.check("gone with its second lease", t.one("a") == nil)
}

func putLarge(t *T) {
	value := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	t.putOf(&pb.PutRequest{Key: t.key("a"), Value: value})
	eqBytes(t, "value", t.one("a").Value, value)
	answer := t.putOf(&pb.PutRequest{Key: t.key("a"), Value: []byte("small"), PrevKv: true})
	eqBytes(t, "previous value", answer.PrevKv.Value, value)
}

func putTooLarge(t *T) {
	_, err := t.kv().Put(t.ctx, &pb.PutRequest{Key: t.key("a"), Value: make([]byte, 1536*1024+1)})
	t.refused(err, codes.InvalidArgument, textTooLarge)
	half := make([]byte, 800*1024)
	_, err = t.kv().Txn(t.ctx, &pb.TxnRequest{Success: ops(opPut(t.key("a"), half), opPut(t.key("b"), half))})
	t.refused(err, codes.InvalidArgument, textTooLarge)
	t.check("nothing written", t.one("a") == nil && t.one("b") == nil)
}

// Lockstep's keys end at 4 KiB: they are held in memory and named in logs and errors.
func putLongKey(t *T) {
	name := string(bytes.Repeat([]byte("k"), 4096-len(t.prefix)))
	t.put(name, "v")
	eqBytes(t, "value", t.one(name).Value, []byte("v"))
	if !t.s.lockstep {
		t.put(name+"k", "v")
		eqBytes(t, "value", t.one(name+"k").Value, []byte("v"))
	}
}

func deleteNothing(t *T) {
	t.undisturbed("a delete that finds nothing uses no revision", func() bool {
		before := t.put("a", "1").Header.Revision
		gone := t.del("absent")
		eq(t, "deleted", gone.Deleted, 0)
		return gone.Header.Revision == before
	})
}

func deleteRange(t *T) {
	t.fill("a", "b", "c", "d")
	t.undisturbed("a range goes in one revision", func() bool {
		before := t.put("b", "1").Header.Revision
		t.put("c", "1")
		gone, err := t.kv().DeleteRange(t.ctx, &pb.DeleteRangeRequest{Key: t.key("b"), RangeEnd: t.key("d")})
		t.noError("delete", err)
		eq(t, "deleted", gone.Deleted, 2)
		eq(t, "prev_kvs unless asked", len(gone.PrevKvs), 0)
		return gone.Header.Revision == before+2
	})
	eqSlice(t, "what is left", t.names(t.get(t.all()).Kvs), []string{"a", "d"})
	last := t.del("a").Header.Revision
	old := t.get(&pb.RangeRequest{Key: t.key("a"), Revision: last - 1})
	eq(t, "the revision before still has it", old.Count, 1)
}

func deletePrevKvs(t *T) {
	t.put("b", "2")
	t.put("c", "3")
	t.put("a", "1")
	gone, err := t.kv().DeleteRange(t.ctx, &pb.DeleteRangeRequest{Key: t.key(""), RangeEnd: t.end(), PrevKv: true})
	t.noError("delete", err)
	eq(t, "deleted", gone.Deleted, 3)
	eqSlice(t, "keys", t.names(gone.PrevKvs), []string{"a", "b", "c"})
	eqBytes(t, "value", gone.PrevKvs[1].Value, []byte("2"))
}

func deleteEmptyKey(t *T) {
	_, err := t.kv().DeleteRange(t.ctx, &pb.DeleteRangeRequest{RangeEnd: []byte{0}})
	t.refused(err, codes.InvalidArgument, textEmptyKey)
}

func deleteInverted(t *T) {
	t.fill("a", "b")
	gone, err := t.kv().DeleteRange(t.ctx, &pb.DeleteRangeRequest{Key: t.key("b"), RangeEnd: t.key("a")})
	t.noError("delete", err)
	eq(t, "deleted", gone.Deleted, 0)
	eq(t, "what is left", t.get(t.all()).Count, 2)
}

func deleteMany(t *T) {
	const keys = 1000
	for first := 0; first < keys; first += 100 {
		var batch []*pb.RequestOp
		for i := range 100 {
			batch = append(batch, opPut(t.key(fmt.Sprintf("%04d", first+i)), []byte("v")))
		}
		t.txn(&pb.TxnRequest{Success: batch})
	}
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key(""), RangeEnd: t.end(), Filters: noPut})
	stream.created(0)
	gone, err := t.kv().DeleteRange(t.ctx, &pb.DeleteRangeRequest{Key: t.key(""), RangeEnd: t.end()})
	t.noError("delete", err)
	eq(t, "deleted", gone.Deleted, keys)
	answer := stream.next()
	eq(t, "events of the one revision come in one response", len(answer.Events), keys)
	for i, event := range answer.Events {
		eqBytes(t, "key order", event.Kv.Key, t.key(fmt.Sprintf("%04d", i)))
		eq(t, "revision", event.Kv.ModRevision, gone.Header.Revision)
	}
}

// casContenders: each round everybody tries to swap the state that all of them read.
func casContenders(t *T) {
	const clients, rounds = 100, 5
	t.put("a", "0")
	for round := range rounds {
		read := t.one("a")
		var won atomic.Int64
		t.together(clients, func(i int) error {
			answer, err := t.kvOf(i%len(t.s.endpoints)).Txn(t.ctx, &pb.TxnRequest{
				Compare: []*pb.Compare{cmpMod(read.Key, pb.Compare_EQUAL, read.ModRevision)},
				Success: ops(opPut(read.Key, fmt.Appendf(nil, "%d by %d", round, i))),
				Failure: ops(opRange(&pb.RangeRequest{Key: read.Key})),
			})
			if err != nil {
				return err
			}
			if answer.Succeeded {
				won.Add(1)
				return nil
			}
			if seen := answer.Responses[0].GetResponseRange().Kvs[0]; seen.ModRevision <= read.ModRevision {
				return fmt.Errorf("lost against revision %d, and still read %d", read.ModRevision, seen.ModRevision)
			}
			return nil
		})
		eq(t, "winners of a round", won.Load(), 1)
	}
	eq(t, "version", t.one("a").Version, rounds+1)
}

func writeEverywhere(t *T) {
	var last int64
	for round := range 5 {
		for member := range t.s.endpoints {
			answer, err := t.kvOf(member).Put(t.ctx, &pb.PutRequest{Key: t.key("a"), Value: fmt.Appendf(nil, "%d", round)})
			t.noError("put", err)
			t.check("revisions ascend over members", answer.Header.Revision > last)
			last = answer.Header.Revision
		}
	}
	eq(t, "version", t.one("a").Version, int64(5*len(t.s.endpoints)))
}
