package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/metadata"
)

// answerLimit is how long an answer may take that is due at once; a busy machine stretches it.
const answerLimit = 15 * time.Second

var (
	noPut    = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}
	noDelete = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE}
)

// watchStream is one Watch call. A goroutine reads all of it, so that a scenario can wait with a limit.
type watchStream struct {
	t      *T
	raw    pb.Watch_WatchClient
	cancel context.CancelFunc
	got    chan *pb.WatchResponse
	// end holds the error that ended it, once.
	end chan error
	// left of a response that is taken event by event.
	left []*mvccpb.Event
}

// watch opens a stream to the first member.
func (t *T) watch() *watchStream { return t.watchOf(0) }

func (t *T) watchOf(member int, headers ...string) *watchStream {
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.ctx, headers...))
	raw, err := pb.NewWatchClient(t.conn(member)).Watch(ctx)
	t.noError("watch", err)
	s := &watchStream{t: t, raw: raw, cancel: cancel, got: make(chan *pb.WatchResponse, 100_000), end: make(chan error, 1)}
	t.atEnd(cancel)
	go s.read()
	return s
}

func (s *watchStream) read() {
	for {
		answer, err := s.raw.Recv()
		if err != nil {
			s.end <- err
			close(s.got)
			return
		}
		s.got <- answer
	}
}

func (s *watchStream) create(request *pb.WatchCreateRequest) {
	s.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: request}})
}

func (s *watchStream) drop(id int64) {
	s.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
}

func (s *watchStream) askProgress() {
	s.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

func (s *watchStream) send(request *pb.WatchRequest) { s.t.noError("send", s.raw.Send(request)) }

func (s *watchStream) next() *pb.WatchResponse { return s.nextWithin(answerLimit) }

func (s *watchStream) nextWithin(limit time.Duration) *pb.WatchResponse {
	answer := s.tryNext(limit)
	if answer == nil {
		s.t.fail("no watch response within %v", limit)
	}
	return answer
}

// tryNext is nil when nothing comes within the limit.
func (s *watchStream) tryNext(limit time.Duration) *pb.WatchResponse {
	select {
	case answer, open := <-s.got:
		if !open {
			s.t.fail("the watch stream ended: %v", <-s.end)
		}
		return answer
	case <-time.After(limit):
		return nil
	case <-s.t.ctx.Done():
		s.t.fail("out of time while waiting for a watch response")
	}
	return nil
}

// created takes the response to a create and checks its form.
func (s *watchStream) created(id int64) *pb.WatchResponse {
	answer := s.next()
	s.t.check(fmt.Sprintf("created: got %v", describe(answer)), answer.Created && !answer.Canceled)
	eq(s.t, "watch id", answer.WatchId, id)
	eq(s.t, "events in the created response", len(answer.Events), 0)
	eq(s.t, "compact_revision", answer.CompactRevision, 0)
	s.t.check("header of created", answer.Header.Revision >= 1 && answer.Header.ClusterId != 0 && answer.Header.MemberId != 0)
	return answer
}

// refusedWith takes the response to a create that is refused.
func (s *watchStream) refusedWith(reason string) {
	answer := s.next()
	s.t.check(fmt.Sprintf("refused: got %v", describe(answer)), answer.Created && answer.Canceled)
	eq(s.t, "watch id", answer.WatchId, -1)
	eq(s.t, "cancel_reason", answer.CancelReason, reason)
	eq(s.t, "compact_revision", answer.CompactRevision, 0)
}

// canceled takes the response that ends one watch.
func (s *watchStream) canceled(id int64) *pb.WatchResponse {
	answer := s.next()
	s.t.check(fmt.Sprintf("canceled: got %v", describe(answer)), answer.Canceled && !answer.Created)
	eq(s.t, "watch id", answer.WatchId, id)
	eq(s.t, "events", len(answer.Events), 0)
	return answer
}

// events collects n events of one watch id, with the rules every response keeps; responses of other ids are refused.
func (s *watchStream) events(id int64, n int) []*mvccpb.Event {
	var events []*mvccpb.Event
	for len(events) < n {
		answer := s.next()
		s.t.check(fmt.Sprintf("events: got %v", describe(answer)), !answer.Created && !answer.Canceled)
		eq(s.t, "watch id", answer.WatchId, id)
		s.t.check("a response without an event", len(answer.Events) > 0)
		for _, event := range answer.Events {
			s.t.check("header.revision is not older than an event", answer.Header.Revision >= event.Kv.ModRevision)
			if last := len(events); last > 0 {
				s.t.check("events ascend", events[last-1].Kv.ModRevision <= event.Kv.ModRevision)
			}
			events = append(events, event)
		}
	}
	eq(s.t, "events", len(events), n)
	return events
}

// told is a short form of events: +name=value, or -name.
func (t *T) told(events []*mvccpb.Event) []string {
	var list []string
	for _, event := range events {
		name := strings.TrimPrefix(string(event.Kv.Key), t.prefix)
		if event.Type == mvccpb.DELETE {
			list = append(list, "-"+name)
		} else {
			list = append(list, "+"+name+"="+string(event.Kv.Value))
		}
	}
	return list
}

func describe(answer *pb.WatchResponse) string {
	return fmt.Sprintf("id %d created %t canceled %t compact %d reason %q events %d revision %d", answer.WatchId,
		answer.Created, answer.Canceled, answer.CompactRevision, answer.CancelReason, len(answer.Events), answer.Header.GetRevision())
}
