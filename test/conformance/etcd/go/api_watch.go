package main

import (
	"bytes"
	"fmt"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	reasonDuplicate = "mvcc: duplicate watch ID provided on the WatchStream"
	reasonCompacted = "etcdserver: mvcc: required revision has been compacted"
	reasonEmpty     = "mvcc: watcher range is empty"
)

var watchScenarios = []scenario{
	{name: "watch/created-comes-first-and-then-events", run: watchCreated},
	{name: "watch/from-an-old-revision", run: watchHistory},
	{name: "watch/from-a-future-revision", run: watchFuture},
	{name: "watch/a-revision-is-one-response-in-operation-order", run: watchAtomic},
	{name: "watch/ranges-prefixes-and-from-key", run: watchRanges},
	{name: "watch/an-empty-key-is-the-first-key", run: watchEmptyKey},
	{name: "watch/delete-events-carry-key-and-revision-only", run: watchDeleteEvent},
	{name: "watch/pipelined-creates-answer-in-order", run: watchPipelined},
	{name: "watch/ids-are-counted-per-stream", run: watchIDs},
	{name: "watch/a-chosen-id-is-taken-once", run: watchDuplicateID},
	{name: "watch/a-chosen-id-is-free-after-cancel", run: watchReusedID},
	{name: "watch/a-negative-start-is-refused", run: watchNegative},
	{name: "watch/an-inverted-range-is-refused", run: watchInverted},
	{name: "watch/nothing-follows-canceled", run: watchCancel},
	{name: "watch/canceling-an-unknown-id-is-ignored", run: watchCancelUnknown},
	{name: "watch/filters", run: watchFilters},
	{name: "watch/prev-kv", run: watchPrevKv},
	{name: "watch/prev-kv-while-replaying", run: watchPrevKvReplay},
	{name: "watch/a-lease-on-the-event", run: watchLease},
	{name: "watch/many-watches-of-one-key", run: watchMany},
	{name: "watch/half-closed-still-delivers", run: watchHalfClose},
	{name: "watch/client-cancel-ends-with-canceled", run: watchClientCancel},
	{name: "watch/hasleader-metadata-with-a-leader", run: watchHasLeader},
	{name: "watch/on-every-member-the-same-order", run: watchMembers},
	{name: "watch/large-revision-unfragmented-is-one-response", run: watchLarge},
	{name: "watch/fragments-of-one-revision", run: watchFragments},
	{name: "watch/fragments-are-not-interleaved", run: watchFragmentsBusy},
	{name: "watch/replay-meets-live-without-gap-or-duplicate", run: watchReplayLive},
	{name: "watch/a-slow-reader-loses-nothing", run: watchSlow},
	{name: "watch/an-empty-request-is-ignored", run: watchEmptyRequest},
	// etcd reads the revision after it has registered the watch, so that it may be a later one.
	{name: "watch/created-tells-exactly-where-it-begins", run: watchBegins, lockstepOnly: true},
}

func (t *T) watchAll() *pb.WatchCreateRequest {
	return &pb.WatchCreateRequest{Key: t.key(""), RangeEnd: t.end()}
}

func watchCreated(t *T) {
	before := t.put("a", "old").Header.Revision
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("a")})
	created := stream.created(0)
	t.check("created is not older than what was there", created.Header.Revision >= before)
	first := t.put("a", "1").Header.Revision
	t.put("b", "not watched")
	t.put("a", "2")
	events := stream.events(0, 2)
	eqSlice(t, "events", t.told(events), []string{"+a=1", "+a=2"})
	kv := events[0].Kv
	eqSlice(t, "create, mod, version", []int64{kv.CreateRevision, kv.ModRevision, kv.Version}, []int64{before, first, 2})
	t.check("no prev_kv unless asked", events[1].PrevKv == nil)
}

func watchHistory(t *T) {
	t.put("a", "0")
	from := t.put("a", "1").Header.Revision
	t.put("b", "1")
	t.del("a")
	t.put("a", "2")
	stream := t.watch()
	request := t.watchAll()
	request.StartRevision = from
	stream.create(request)
	stream.created(0)
	t.put("a", "live")
	eqSlice(t, "events", t.told(stream.events(0, 5)), []string{"+a=1", "+b=1", "-a", "+a=2", "+a=live"})
}

func watchFuture(t *T) {
	now := t.put("a", "0").Header.Revision
	stream := t.watch()
	request := t.watchAll()
	request.StartRevision = now + 5
	stream.create(request)
	stream.created(0)
	var want []string
	for written := now; written < now+7; {
		written = t.put("a", fmt.Sprint(written)).Header.Revision
		if written >= now+5 {
			want = append(want, "+a="+string(t.one("a").Value))
		}
	}
	events := stream.events(0, len(want))
	eqSlice(t, "events from that revision on", t.told(events), want)
	t.check("not below the start", events[0].Kv.ModRevision >= now+5)
}

func watchAtomic(t *T) {
	stream := t.watch()
	stream.create(t.watchAll())
	stream.created(0)
	answer := t.txn(&pb.TxnRequest{Success: ops(
		opPut(t.key("c"), []byte("1")), opPut(t.key("a"), []byte("2")), opPut(t.key("b"), []byte("3")),
	)})
	response := stream.next()
	eqSlice(t, "operation order", t.told(response.Events), []string{"+c=1", "+a=2", "+b=3"})
	for _, event := range response.Events {
		eq(t, "revision", event.Kv.ModRevision, answer.Header.Revision)
	}
	t.txn(&pb.TxnRequest{Success: ops(opDelete(t.key("a"), t.key("c")), opPut(t.key("d"), []byte("4")), opTxn(&pb.TxnRequest{Success: ops(opDelete(t.key("c"), nil))}))})
	eqSlice(t, "deletes and nested ones", t.told(stream.next().Events), []string{"-a", "-b", "+d=4", "-c"})
	from := t.watch()
	request := t.watchAll()
	request.StartRevision = answer.Header.Revision
	from.create(request)
	from.created(0)
	eqSlice(t, "the same from history", t.told(from.events(0, 7)), []string{"+c=1", "+a=2", "+b=3", "-a", "-b", "+d=4", "-c"})
}

func watchRanges(t *T) {
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("b"), RangeEnd: t.key("d")})
	stream.created(0)
	other := t.watch()
	other.create(&pb.WatchCreateRequest{Key: t.key("c"), RangeEnd: []byte{0}})
	other.created(0)
	t.fill("a", "b", "bb", "c", "d")
	eqSlice(t, "half-open", t.told(stream.events(0, 3)), []string{"+b=vb", "+bb=vbb", "+c=vc"})
	var own []*mvccpb.Event
	for len(own) < 2 {
		for _, event := range other.next().Events {
			if bytes.HasPrefix(event.Kv.Key, []byte(t.prefix)) {
				own = append(own, event)
			}
		}
	}
	eqSlice(t, "from key", t.told(own), []string{"+c=vc", "+d=vd"})
}

func watchEmptyKey(t *T) {
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{RangeEnd: []byte{0}})
	stream.created(0)
	t.put("a", "1")
	for {
		for _, event := range stream.next().Events {
			if bytes.Equal(event.Kv.Key, t.key("a")) {
				return
			}
		}
	}
}

func watchDeleteEvent(t *T) {
	t.put("a", "1")
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("a")})
	stream.created(0)
	revision := t.del("a").Header.Revision
	kv := stream.events(0, 1)[0].Kv
	eq(t, "mod_revision", kv.ModRevision, revision)
	eq(t, "create_revision", kv.CreateRevision, 0)
	eq(t, "version", kv.Version, 0)
	eq(t, "value", len(kv.Value), 0)
	eq(t, "lease", kv.Lease, 0)
}

func watchPipelined(t *T) {
	stream := t.watch()
	for i := range 20 {
		stream.create(&pb.WatchCreateRequest{Key: t.key(fmt.Sprint(i))})
	}
	for i := range 20 {
		stream.created(int64(i))
	}
	t.put("13", "x")
	eqSlice(t, "events", t.told(stream.events(13, 1)), []string{"+13=x"})
}

func watchIDs(t *T) {
	first, second := t.watch(), t.watch()
	for id := range int64(3) {
		first.create(t.watchAll())
		first.created(id)
	}
	second.create(t.watchAll())
	second.created(0)
	first.create(&pb.WatchCreateRequest{Key: t.key("a"), WatchId: 4})
	first.created(4)
	first.create(&pb.WatchCreateRequest{Key: t.key("a")})
	first.created(3)
	first.create(&pb.WatchCreateRequest{Key: t.key("a")})
	first.created(5)
}

func watchDuplicateID(t *T) {
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("a"), WatchId: 7})
	stream.created(7)
	stream.create(&pb.WatchCreateRequest{Key: t.key("b"), WatchId: 7})
	stream.refusedWith(reasonDuplicate)
	t.put("b", "x")
	t.put("a", "x")
	eqSlice(t, "the first one goes on", t.told(stream.events(7, 1)), []string{"+a=x"})
}

func watchReusedID(t *T) {
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("a"), WatchId: 7})
	stream.created(7)
	stream.drop(7)
	stream.canceled(7)
	stream.create(&pb.WatchCreateRequest{Key: t.key("b"), WatchId: 7})
	stream.created(7)
	t.put("a", "x")
	t.put("b", "x")
	eqSlice(t, "the second one's events", t.told(stream.events(7, 1)), []string{"+b=x"})
}

func watchNegative(t *T) {
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("a"), StartRevision: -1})
	stream.refusedWith(reasonCompacted)
	stream.create(&pb.WatchCreateRequest{Key: t.key("a")})
	stream.created(0)
}

func watchInverted(t *T) {
	stream := t.watch()
	for _, end := range []string{"b", "a"} {
		stream.create(&pb.WatchCreateRequest{Key: t.key("b"), RangeEnd: t.key(end)})
		stream.refusedWith(reasonEmpty)
	}
	stream.create(&pb.WatchCreateRequest{Key: t.key("b")})
	stream.created(0)
}

func watchCancel(t *T) {
	stream := t.watch()
	for id := range int64(2) {
		stream.create(t.watchAll())
		stream.created(id)
	}
	writing := make(chan error, 1)
	go func() {
		for i := range 200 {
			if _, err := t.kv().Put(t.ctx, &pb.PutRequest{Key: t.key("a"), Value: fmt.Append(nil, i)}); err != nil {
				writing <- err
				return
			}
		}
		writing <- nil
	}()
	stream.next()
	stream.drop(1)
	last, gone := "", false
	for last != "199" {
		answer := stream.next()
		switch {
		case answer.WatchId == 1 && gone:
			t.fail("after canceled: %s", describe(answer))
		case answer.WatchId == 1:
			gone = answer.Canceled
		case len(answer.Events) > 0:
			last = string(answer.Events[len(answer.Events)-1].Kv.Value)
		}
	}
	t.noError("put", <-writing)
	t.check("canceled was answered", gone)
}

func watchCancelUnknown(t *T) {
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("a")})
	stream.created(0)
	stream.drop(99)
	stream.drop(-1)
	t.put("a", "1")
	eqSlice(t, "events", t.told(stream.events(0, 1)), []string{"+a=1"})
	stream.drop(0)
	stream.canceled(0)
	stream.drop(0)
	stream.create(&pb.WatchCreateRequest{Key: t.key("a")})
	stream.created(1)
}

func watchFilters(t *T) {
	stream := t.watch()
	for id, filters := range [][]pb.WatchCreateRequest_FilterType{noPut, noDelete, append(append([]pb.WatchCreateRequest_FilterType{}, noPut...), noDelete...)} {
		stream.create(&pb.WatchCreateRequest{Key: t.key("a"), Filters: filters})
		stream.created(int64(id))
	}
	t.put("a", "1")
	t.put("a", "2")
	t.del("a")
	told := map[int64][]string{}
	for len(told[0])+len(told[1]) < 3 {
		answer := stream.next()
		t.check("a response without an event", len(answer.Events) > 0)
		told[answer.WatchId] = append(told[answer.WatchId], t.told(answer.Events)...)
	}
	eqSlice(t, "NOPUT", told[0], []string{"-a"})
	eqSlice(t, "NODELETE", told[1], []string{"+a=1", "+a=2"})
	eq(t, "both filters: nothing", len(told[2]), 0)
	replay := t.watch()
	replay.create(&pb.WatchCreateRequest{Key: t.key("a"), Filters: noPut, StartRevision: 0})
	replay.created(0)
	t.put("a", "3")
	t.del("a")
	eqSlice(t, "NOPUT alone", t.told(replay.events(0, 1)), []string{"-a"})
}

func watchPrevKv(t *T) {
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("a"), PrevKv: true})
	stream.created(0)
	first := t.put("a", "1").Header.Revision
	t.put("a", "2")
	t.del("a")
	t.put("a", "3")
	events := stream.events(0, 4)
	t.check("none on create", events[0].PrevKv == nil)
	eqBytes(t, "on update", events[1].PrevKv.Value, []byte("1"))
	eq(t, "its mod_revision", events[1].PrevKv.ModRevision, first)
	eqBytes(t, "on delete", events[2].PrevKv.Value, []byte("2"))
	eq(t, "its version", events[2].PrevKv.Version, 2)
	t.check("none on a new life", events[3].PrevKv == nil)
}

func watchPrevKvReplay(t *T) {
	from := t.put("a", "1").Header.Revision
	t.put("a", "2")
	t.del("a")
	t.put("a", "3")
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("a"), PrevKv: true, StartRevision: from})
	stream.created(0)
	events := stream.events(0, 4)
	t.check("none on create", events[0].PrevKv == nil)
	eqBytes(t, "on update", events[1].PrevKv.Value, []byte("1"))
	eqBytes(t, "on delete", events[2].PrevKv.Value, []byte("2"))
	t.check("none on a new life", events[3].PrevKv == nil)
}

func watchLease(t *T) {
	lease := t.grant(60)
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("a")})
	stream.created(0)
	t.putLeased("a", lease)
	eq(t, "lease", stream.events(0, 1)[0].Kv.Lease, lease)
}

func watchMany(t *T) {
	const watches = 500
	stream := t.watch()
	for id := range int64(watches) {
		stream.create(&pb.WatchCreateRequest{Key: t.key("a")})
		stream.created(id)
	}
	t.put("a", "1")
	told := map[int64]string{}
	for len(told) < watches {
		answer := stream.next()
		_, twice := told[answer.WatchId]
		t.check("once each", !twice)
		told[answer.WatchId] = t.told(answer.Events)[0]
	}
	for id, text := range told {
		eq(t, fmt.Sprint("watch ", id), text, "+a=1")
	}
}

func watchHalfClose(t *T) {
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("a")})
	stream.created(0)
	t.noError("half-close", stream.raw.CloseSend())
	for i := range 3 {
		t.put("a", fmt.Sprint(i))
		eqSlice(t, "events", t.told(stream.events(0, 1)), []string{fmt.Sprintf("+a=%d", i)})
	}
}

func watchClientCancel(t *T) {
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("a")})
	stream.created(0)
	stream.cancel()
	select {
	case err := <-stream.end:
		eq(t, "code", status.Code(err), codes.Canceled)
		t.check("not the end of a healthy stream", err != io.EOF)
	case <-time.After(answerLimit):
		t.fail("the stream did not end")
	}
	t.put("a", "1") // The connection goes on.
}

func watchHasLeader(t *T) {
	stream := t.watchOf(0, "hasleader", "true")
	stream.create(&pb.WatchCreateRequest{Key: t.key("a")})
	stream.created(0)
	t.put("a", "1")
	stream.events(0, 1)
}

func watchMembers(t *T) {
	var streams []*watchStream
	for member := range t.s.endpoints {
		stream := t.watchOf(member)
		stream.create(t.watchAll())
		stream.created(0)
		streams = append(streams, stream)
	}
	var want []string
	for i := range 30 {
		_, err := t.kvOf(i%len(t.s.endpoints)).Put(t.ctx, &pb.PutRequest{Key: t.key("a"), Value: fmt.Append(nil, i)})
		t.noError("put", err)
		want = append(want, fmt.Sprintf("+a=%d", i))
	}
	for _, stream := range streams {
		eqSlice(t, "events", t.told(stream.events(0, 30)), want)
	}
}

// bigRevision deletes what makes n times size bytes of events of one revision: with prev_kv they are 3 MiB and more,
// though no request was that large.
func (t *T) bigRevision(n, size int) func() int64 {
	for i := range n {
		t.put(fmt.Sprintf("big%03d", i), string(bytes.Repeat([]byte{byte('a' + i%26)}, size)))
	}
	return func() int64 {
		gone, err := t.kv().DeleteRange(t.ctx, &pb.DeleteRangeRequest{Key: t.key("big"), RangeEnd: prefixEnd(t.key("big"))})
		t.noError("delete", err)
		eq(t, "deleted", gone.Deleted, int64(n))
		return gone.Header.Revision
	}
}

func (t *T) checkBig(events []*mvccpb.Event, n, size int, revision int64) {
	eq(t, "events", len(events), n)
	for i, event := range events {
		eqBytes(t, "order", event.Kv.Key, t.key(fmt.Sprintf("big%03d", i)))
		eq(t, "revision", event.Kv.ModRevision, revision)
		eq(t, "bytes of prev_kv", len(event.PrevKv.Value), size)
	}
}

func watchLarge(t *T) {
	remove := t.bigRevision(12, 300*1024)
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("big"), RangeEnd: prefixEnd(t.key("big")), PrevKv: true})
	stream.created(0)
	revision := remove()
	answer := stream.next()
	eq(t, "fragment", answer.Fragment, false)
	t.checkBig(answer.Events, 12, 300*1024, revision)
}

func watchFragments(t *T) {
	remove := t.bigRevision(12, 300*1024)
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("big"), RangeEnd: prefixEnd(t.key("big")), PrevKv: true, Fragment: true})
	stream.created(0)
	revision := remove()
	t.checkBig(stream.fragments(0), 12, 300*1024, revision)
	t.put("big", "small")
	answer := stream.next()
	eq(t, "a small response is whole", answer.Fragment, false)
}

// fragments merges the parts of one response: more than one, contiguous on the stream, only the last unmarked.
func (s *watchStream) fragments(id int64) []*mvccpb.Event {
	var events []*mvccpb.Event
	for parts := 1; ; parts++ {
		answer := s.next()
		eq(s.t, "watch id within the fragments", answer.WatchId, id)
		s.t.check("an empty fragment", len(answer.Events) > 0)
		events = append(events, answer.Events...)
		if !answer.Fragment {
			s.t.check("it came in parts", parts > 1)
			return events
		}
	}
}

func watchFragmentsBusy(t *T) {
	remove := t.bigRevision(12, 300*1024)
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("busy")})
	stream.created(0)
	stream.create(&pb.WatchCreateRequest{Key: t.key("big"), RangeEnd: prefixEnd(t.key("big")), PrevKv: true, Fragment: true})
	stream.created(1)
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if _, err := t.kvOf(1).Put(t.ctx, &pb.PutRequest{Key: t.key("busy"), Value: []byte("x")}); err != nil {
				stopped <- err
				return
			}
		}
	}()
	revision := remove()
	var events []*mvccpb.Event
	for {
		answer := stream.next()
		if answer.WatchId == 0 {
			eq(t, "fragments seen before another id", len(events), 0)
			continue
		}
		events = append(events, answer.Events...)
		if !answer.Fragment {
			break
		}
	}
	close(stop)
	t.noError("put", <-stopped)
	t.checkBig(events, 12, 300*1024, revision)
}

func watchReplayLive(t *T) {
	const writes = 300
	from := t.put("a", "0").Header.Revision
	var writing = make(chan error, 1)
	go func() {
		for i := 1; i < writes; i++ {
			if _, err := t.kv().Put(t.ctx, &pb.PutRequest{Key: t.key("a"), Value: fmt.Append(nil, i)}); err != nil {
				writing <- err
				return
			}
		}
		writing <- nil
	}()
	for member := range 9 {
		stream := t.watchOf(member % len(t.s.endpoints))
		stream.create(&pb.WatchCreateRequest{Key: t.key("a"), StartRevision: from})
		stream.created(0)
		for i, event := range stream.events(0, writes) {
			eqBytes(t, "in order, each once", event.Kv.Value, fmt.Append(nil, i))
			eq(t, "version", event.Kv.Version, int64(i+1))
		}
	}
	t.noError("put", <-writing)
}

// watchSlow: a reader that stops reading for a while fills every buffer on the way.
func watchSlow(t *T) {
	const writes, size = 150, 200 * 1024
	ctx := t.ctx
	raw, err := pb.NewWatchClient(t.conn(0)).Watch(ctx)
	t.noError("watch", err)
	t.noError("send", raw.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: t.watchAll()}}))
	created, err := raw.Recv()
	t.noError("created", err)
	t.check("created", created.Created)
	value := string(bytes.Repeat([]byte("s"), size))
	for i := range writes {
		_, err := t.kvOf(1).Put(ctx, &pb.PutRequest{Key: t.key(fmt.Sprint(i)), Value: []byte(value)})
		t.noError("put", err)
	}
	for seen := 0; seen < writes; {
		answer, err := raw.Recv()
		t.noError("recv", err)
		for _, event := range answer.Events {
			eqBytes(t, "in order, each once", event.Kv.Key, t.key(fmt.Sprint(seen)))
			seen++
		}
	}
}

func watchEmptyRequest(t *T) {
	stream := t.watch()
	stream.send(&pb.WatchRequest{})
	stream.create(&pb.WatchCreateRequest{Key: t.key("a")})
	stream.created(0)
}

// watchBegins: jetcd resumes behind the revision of `created`, so it must be the one before the first watched.
func watchBegins(t *T) {
	stop, written := make(chan struct{}), make(chan []int64, 1)
	go func() {
		var revisions []int64
		for {
			select {
			case <-stop:
				written <- revisions
				return
			default:
			}
			if answer, err := t.kvOf(1).Put(t.ctx, &pb.PutRequest{Key: t.key("a")}); err == nil {
				revisions = append(revisions, answer.Header.Revision)
			}
		}
	}()
	var streams []*watchStream
	var begins []int64
	for range 30 {
		stream := t.watch()
		stream.create(&pb.WatchCreateRequest{Key: t.key("a")})
		begins = append(begins, stream.created(0).Header.Revision)
		streams = append(streams, stream)
	}
	close(stop)
	revisions := append(<-written, t.put("a", "last").Header.Revision)
	for i, stream := range streams {
		for _, revision := range revisions {
			if revision > begins[i] {
				eq(t, "the next event's revision", stream.eventOf(0).Kv.ModRevision, revision)
			}
		}
	}
}

// eventOf takes one event, also out of a response with several.
func (s *watchStream) eventOf(id int64) *mvccpb.Event {
	if len(s.left) == 0 {
		answer := s.next()
		eq(s.t, "watch id", answer.WatchId, id)
		s.t.check("events: "+describe(answer), len(answer.Events) > 0)
		s.left = answer.Events
	}
	event := s.left[0]
	s.left = s.left[1:]
	return event
}
