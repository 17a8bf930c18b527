package main

import (
	"bytes"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
)

// Compaction cuts the history of the whole store, so these run alone.
var compactScenarios = []scenario{
	{name: "compact/at-the-point-is-readable-and-below-is-not", run: compactPoint, alone: true},
	{name: "compact/refused-revisions", run: compactRefused, alone: true},
	{name: "compact/physical", run: compactPhysical, alone: true},
	// See txn/a-future-range-fails-all-of-it: etcd's members differ after this.
	{name: "compact/a-txn-that-reads-below-fails-whole", run: compactTxn, alone: true, lockstepOnly: true},
	{name: "compact/a-watch-from-below-is-canceled-with-the-point", run: compactWatch, alone: true},
	{name: "compact/a-watch-from-the-point-sees-its-tombstone", run: compactTombstone, alone: true},
	{name: "compact/a-running-watch-goes-on", run: compactRunning, alone: true},
	{name: "compact/prev-kv-below-the-point-is-absent", run: compactPrevKv, alone: true},
	{name: "compact/hash-kv-below-the-point-is-refused", run: compactHash, alone: true},
	{name: "compact/metadata-of-live-keys-stays", run: compactMetadata, alone: true},
}

func (t *T) compact(revision int64) *pb.CompactionResponse {
	answer, err := t.kv().Compact(t.ctx, &pb.CompactionRequest{Revision: revision})
	t.noError("compact", err)
	return answer
}

// onAll brings every member up to the present, as a linearizable read does.
func (t *T) onAll(f func(member int)) {
	for member := range t.s.endpoints {
		_, err := t.kvOf(member).Range(t.ctx, t.all())
		t.noError("range", err)
		f(member)
	}
}

func compactPoint(t *T) {
	t.put("a", "1")
	before := t.put("a", "2").Header.Revision
	point := t.put("a", "3").Header.Revision
	t.put("a", "4")
	answer := t.compact(point)
	t.check("header.revision is the present", answer.Header.Revision > point)
	t.onAll(func(member int) {
		at, err := t.kvOf(member).Range(t.ctx, &pb.RangeRequest{Key: t.key("a"), Revision: point})
		t.noError("range at the point", err)
		eqBytes(t, "value at the point", at.Kvs[0].Value, []byte("3"))
		_, err = t.kvOf(member).Range(t.ctx, &pb.RangeRequest{Key: t.key("a"), Revision: before})
		t.refused(err, codes.OutOfRange, textCompacted)
	})
	eqBytes(t, "value now", t.one("a").Value, []byte("4"))
}

func compactRefused(t *T) {
	point := t.put("a", "1").Header.Revision
	t.compact(point)
	for _, revision := range []int64{point, point - 1, 1, 0, -7} {
		_, err := t.kv().Compact(t.ctx, &pb.CompactionRequest{Revision: revision})
		t.refused(err, codes.OutOfRange, textCompacted)
	}
	now := t.get(t.all()).Header.Revision
	_, err := t.kv().Compact(t.ctx, &pb.CompactionRequest{Revision: now + 1})
	t.refused(err, codes.OutOfRange, textFuture)
	eq(t, "it uses no revision", t.get(t.all()).Header.Revision, now)
}

func compactPhysical(t *T) {
	for i := range 50 {
		t.put("a", fmt.Sprint(i))
	}
	point := t.put("a", "last").Header.Revision
	_, err := t.kv().Compact(t.ctx, &pb.CompactionRequest{Revision: point, Physical: true})
	t.noError("compact", err)
	_, err = t.kv().Range(t.ctx, &pb.RangeRequest{Key: t.key("a"), Revision: point - 1})
	t.refused(err, codes.OutOfRange, textCompacted)
	eqBytes(t, "value", t.one("a").Value, []byte("last"))
}

func compactTxn(t *T) {
	before := t.put("x", "1").Header.Revision
	t.compact(t.put("x", "2").Header.Revision)
	request := &pb.TxnRequest{Success: ops(opPut(t.key("a"), []byte("x")), opRange(&pb.RangeRequest{Key: t.key("x"), Revision: before}))}
	_, err := t.kv().Txn(t.ctx, request)
	t.refused(err, codes.OutOfRange, textCompacted)
	t.onAll(func(member int) {
		found, err := t.kvOf(member).Range(t.ctx, &pb.RangeRequest{Key: t.key("a"), Serializable: true})
		t.noError("range", err)
		eq(t, "nothing written", found.Count, 0)
	})
}

func compactWatch(t *T) {
	from := t.put("a", "1").Header.Revision
	t.put("a", "2")
	point := t.put("a", "3").Header.Revision
	t.compact(point)
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("other")})
	stream.created(0)
	stream.create(&pb.WatchCreateRequest{Key: t.key("a"), StartRevision: from})
	created := stream.created(1)
	t.check("created tells the present", created.Header.Revision >= point)
	gone := stream.canceled(1)
	eq(t, "compact_revision", gone.CompactRevision, point)
	eq(t, "cancel_reason", gone.CancelReason, "")
	// etcd leaves it 0 here.
	t.check("header.revision", gone.Header.Revision == 0 || gone.Header.Revision >= point)
	t.put("other", "x")
	eqSlice(t, "the other watch goes on", t.told(stream.events(0, 1)), []string{"+other=x"})
	stream.create(&pb.WatchCreateRequest{Key: t.key("a"), StartRevision: point})
	stream.created(2)
	eqSlice(t, "from the point on", t.told(stream.events(2, 1)), []string{"+a=3"})
}

func compactTombstone(t *T) {
	t.put("a", "1")
	point := t.del("a").Header.Revision
	t.put("a", "2")
	t.compact(point)
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("a"), StartRevision: point})
	stream.created(0)
	events := stream.events(0, 2)
	eqSlice(t, "events", t.told(events), []string{"-a", "+a=2"})
	eq(t, "the tombstone's revision", events[0].Kv.ModRevision, point)
	at := t.get(&pb.RangeRequest{Key: t.key("a"), Revision: point})
	eq(t, "absent at the point", at.Count, 0)
}

func compactRunning(t *T) {
	stream := t.watch()
	stream.create(t.watchAll())
	stream.created(0)
	for i := range 20 {
		written := t.put("a", fmt.Sprint(i)).Header.Revision
		t.compact(written)
	}
	for i, event := range stream.events(0, 20) {
		eqBytes(t, "value", event.Kv.Value, fmt.Append(nil, i))
	}
}

func compactPrevKv(t *T) {
	t.put("a", "1")
	point := t.put("a", "2").Header.Revision
	t.put("b", "1")
	t.compact(t.put("b", "2").Header.Revision)
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("b"), PrevKv: true, StartRevision: t.one("b").ModRevision})
	stream.created(0)
	event := stream.events(0, 1)[0]
	eqBytes(t, "value", event.Kv.Value, []byte("2"))
	t.check("the state before is compacted", event.PrevKv == nil)
	t.check("point", point > 0)
	t.put("b", "3")
	t.check("the next one has it", bytes.Equal(stream.events(0, 1)[0].PrevKv.Value, []byte("2")))
}

func compactHash(t *T) {
	before := t.put("a", "1").Header.Revision
	t.compact(t.put("a", "2").Header.Revision)
	_, err := t.maintenance().HashKV(t.ctx, &pb.HashKVRequest{Revision: before})
	t.refused(err, codes.OutOfRange, textCompacted)
}

func compactMetadata(t *T) {
	lease := t.grant(60)
	created := t.put("a", "1").Header.Revision
	t.put("a", "2")
	t.putLeased("a", lease)
	t.put("gone", "1")
	t.del("gone")
	point := t.put("z", "1").Header.Revision
	t.compact(point)
	a := t.one("a")
	eqSlice(t, "create, version, lease", []int64{a.CreateRevision, a.Version, a.Lease}, []int64{created, 3, lease})
	eqSlice(t, "keys", t.names(t.get(t.all()).Kvs), []string{"a", "z"})
	t.put("a", "4")
	eq(t, "version goes on", t.one("a").Version, 4)
	t.put("gone", "2")
	eq(t, "a deleted key starts anew", t.one("gone").Version, 1)
}
