package main

import (
	"bytes"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// progressInterval is what the server under test must have been started with: --watch-progress-notify-interval.
const progressInterval = time.Second

var progressScenarios = []scenario{
	{name: "progress/asked-for-is-one-response-for-the-stream", run: progressAsked},
	{name: "progress/without-watches-is-not-answered", run: progressNoWatches},
	{name: "progress/below-a-future-start-is-not-answered", run: progressFuture},
	{name: "progress/never-ahead-of-an-event", run: progressStorm},
	{name: "progress/after-a-replay", run: progressReplay},
	{name: "progress/covers-writes-to-other-keys", run: progressOtherKeys},
	{name: "progress/notifies-an-idle-watch", run: progressNotify},
	{name: "progress/does-not-notify-unasked", run: progressNotUnasked},
}

// isProgress: no events and no change of the watch.
func isProgress(answer *pb.WatchResponse) bool {
	return len(answer.Events) == 0 && !answer.Created && !answer.Canceled && answer.CompactRevision == 0
}

// askUntilAnswered repeats the question: a server may leave one unanswered while a watch still catches up.
func (s *watchStream) askUntilAnswered() *pb.WatchResponse {
	for range 100 {
		s.askProgress()
		if answer := s.tryNext(200 * time.Millisecond); answer != nil {
			return answer
		}
	}
	s.t.fail("no progress response")
	return nil
}

func progressAsked(t *T) {
	stream := t.watch()
	for id := range int64(3) {
		stream.create(&pb.WatchCreateRequest{Key: t.key(fmt.Sprint(id))})
		stream.created(id)
	}
	written := t.put("other", "1").Header.Revision
	answer := stream.askUntilAnswered()
	t.check("progress: "+describe(answer), isProgress(answer))
	eq(t, "watch id stands for all", answer.WatchId, -1)
	t.check("its revision covers what was written", answer.Header.Revision >= written)
	t.put("1", "x")
	for {
		answer := stream.next()
		if isProgress(answer) {
			continue // The answer to a question that was asked twice.
		}
		eqSlice(t, "events go on", t.told(answer.Events), []string{"+1=x"})
		return
	}
}

func progressNoWatches(t *T) {
	stream := t.watch()
	stream.askProgress()
	stream.create(&pb.WatchCreateRequest{Key: t.key("a")})
	stream.created(0)
	stream.drop(0)
	stream.canceled(0)
}

func progressFuture(t *T) {
	now := t.put("a", "0").Header.Revision
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("a"), StartRevision: now + 1_000_000})
	stream.created(0)
	for range 5 {
		stream.askProgress()
	}
	stream.create(&pb.WatchCreateRequest{Key: t.key("b")})
	stream.created(1)
	stream.askProgress()
	t.put("b", "1")
	eqSlice(t, "the next response", t.told(stream.events(1, 1)), []string{"+b=1"})
}

// progressStorm: under writes, and with questions all the time, no event may come at or below a revision that
// progress has declared done.
func progressStorm(t *T) {
	const writes = 400
	stream := t.watch()
	for id := range int64(3) {
		stream.create(t.watchAll())
		stream.created(id)
	}
	done := make(chan error, 1)
	go func() {
		for i := range writes {
			if _, err := t.kvOf(i%2).Put(t.ctx, &pb.PutRequest{Key: t.key("a"), Value: fmt.Append(nil, i)}); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	seen := make([]int, 3)
	var declared int64
	answers := 0
	for seen[0]+seen[1]+seen[2] < 3*writes {
		stream.askProgress()
		answer := stream.next()
		if answer.WatchId == -1 {
			t.check("progress does not go back", answer.Header.Revision >= declared)
			declared = answer.Header.Revision
			answers++
			continue
		}
		for _, event := range answer.Events {
			t.check("an event at or below a declared revision", event.Kv.ModRevision > declared)
			eqBytes(t, "in order, each once", event.Kv.Value, fmt.Append(nil, seen[answer.WatchId]))
			seen[answer.WatchId]++
		}
	}
	t.noError("put", <-done)
	if answers == 0 {
		stream.askUntilAnswered()
	}
}

func progressReplay(t *T) {
	from := t.put("a", "0").Header.Revision
	last := from
	for i := range 50 {
		last = t.put("a", fmt.Sprint(i)).Header.Revision
	}
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("a"), StartRevision: from})
	stream.askProgress()
	stream.created(0)
	events := 0
	for events < 51 {
		answer := stream.next()
		if isProgress(answer) {
			t.check("before the replay ended", events == 51)
		}
		events += len(answer.Events)
	}
	answer := stream.askUntilAnswered()
	t.check("progress covers the replay", answer.Header.Revision >= last)
}

// progressOtherKeys is what kube-apiserver's consistent reads from its cache rest on: read the current revision,
// ask for progress, and be told of it though nothing watched was written.
func progressOtherKeys(t *T) {
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("watched/"), RangeEnd: prefixEnd(t.key("watched/"))})
	stream.created(0)
	for i := range 20 {
		written, err := t.kvOf(i).Put(t.ctx, &pb.PutRequest{Key: t.key("other")})
		t.noError("put", err)
		reached := int64(0)
		for attempt := 0; reached < written.Header.Revision; attempt++ {
			t.check("progress reaches the revision of the write", attempt < 200)
			stream.askProgress()
			if answer := stream.tryNext(100 * time.Millisecond); answer != nil {
				t.check("progress: "+describe(answer), isProgress(answer))
				reached = answer.Header.Revision
			}
		}
	}
}

func progressNotify(t *T) {
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("a"), ProgressNotify: true})
	created := stream.created(0)
	var last int64 = created.Header.Revision
	for range 2 {
		written := t.put("other", "1").Header.Revision
		for {
			answer := stream.nextWithin(30 * time.Second)
			t.check("progress: "+describe(answer), isProgress(answer))
			eq(t, "watch id", answer.WatchId, 0)
			t.check("it does not go back", answer.Header.Revision >= last)
			last = answer.Header.Revision
			if last >= written {
				break
			}
		}
	}
	t.put("a", "x")
	for {
		answer := stream.nextWithin(30 * time.Second)
		if isProgress(answer) {
			continue
		}
		t.check("no event at or below a declared revision", answer.Events[0].Kv.ModRevision > last)
		eqSlice(t, "events", t.told(answer.Events), []string{"+a=x"})
		return
	}
}

func progressNotUnasked(t *T) {
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key("a")})
	stream.created(0)
	// The absence of something has no event to wait for: another watch that is notified twice is the clock.
	clock := t.watch()
	clock.create(&pb.WatchCreateRequest{Key: t.key("clock"), ProgressNotify: true})
	clock.created(0)
	clock.nextWithin(30 * time.Second)
	clock.nextWithin(30 * time.Second)
	t.put("a", "1")
	eq(t, "the first response is the event", bytes.Equal(stream.next().Events[0].Kv.Key, t.key("a")), true)
}
