package main

import (
	"context"
	"fmt"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	textNoLeader = "etcdserver: no leader"
	textNoSpace  = "etcdserver: mvcc: database space exceeded"
)

var faultScenarios = []scenario{
	{name: "fault/a-stopped-member-ends-its-watches-without-canceled", run: faultShutdown, needs: "control"},
	{name: "fault/without-a-quorum", run: faultNoQuorum, needs: "control"},
	{name: "fault/a-killed-leader-loses-nothing", run: faultLeaderKilled, needs: "control"},
	{name: "fault/an-acknowledged-lease-outlives-its-leader", run: faultLease, needs: "control"},
	{name: "fault/a-restarted-member-serves-old-watches-and-revisions", run: faultRestart, needs: "control"},
	{name: "nospace/full-and-freed-again", run: faultNoSpace, needs: "nospace"},
}

// writable waits until the members take writes again, and leaves them all started.
func (t *T) writable() {
	t.until("writes", func() bool {
		ctx, cancel := context.WithTimeout(t.ctx, 2*time.Second)
		defer cancel()
		for member := range t.s.endpoints {
			if _, err := t.kvOf(member).Put(ctx, &pb.PutRequest{Key: t.key("probe")}, grpc.WaitForReady(true)); err != nil {
				return false
			}
		}
		return true
	})
}

func faultShutdown(t *T) {
	member := (t.leader() + 1) % len(t.s.endpoints)
	stream := t.watchOf(member)
	stream.create(&pb.WatchCreateRequest{Key: t.key("a")})
	stream.created(0)
	t.control("stop", member)
	defer t.writable()
	defer t.control("start", member)
	select {
	case answer, open := <-stream.got:
		if open {
			t.fail("a response at the end: %s", describe(answer))
		}
	case <-time.After(30 * time.Second):
		t.fail("the stream did not end")
	}
	err := <-stream.end
	t.check(fmt.Sprintf("the end of the stream is an outage: %v", err), err == io.EOF || status.Code(err) == codes.Unavailable)
}

func (t *T) outage(err error) {
	code := status.Code(err)
	t.check(fmt.Sprintf("an outage: %v", err), code == codes.Unavailable || code == codes.DeadlineExceeded)
}

func faultNoQuorum(t *T) {
	if len(t.s.endpoints) < 3 {
		t.skip("needs three members")
	}
	t.put("a", "1")
	t.onAll(func(int) {})
	left := 0
	plain := t.watchOf(left)
	plain.create(&pb.WatchCreateRequest{Key: t.key("a")})
	plain.created(0)
	strict := t.watchOf(left, "hasleader", "true")
	strict.create(&pb.WatchCreateRequest{Key: t.key("a")})
	strict.created(0)
	for member := 1; member < len(t.s.endpoints); member++ {
		t.control("kill", member)
	}
	defer t.writable()
	defer func() {
		for member := 1; member < len(t.s.endpoints); member++ {
			t.control("start", member)
		}
	}()
	select {
	case <-strict.got:
	case <-time.After(30 * time.Second):
		t.fail("a watch with hasleader did not end")
	}
	t.refused(<-strict.end, codes.Unavailable, textNoLeader)
	ctx, cancel := context.WithTimeout(t.ctx, 2*time.Second)
	defer cancel()
	_, err := t.kvOf(left).Range(ctx, &pb.RangeRequest{Key: t.key("a")})
	t.outage(err)
	ctx, cancel = context.WithTimeout(t.ctx, 2*time.Second)
	defer cancel()
	_, err = t.kvOf(left).Put(ctx, &pb.PutRequest{Key: t.key("a"), Value: []byte("2")})
	t.outage(err)
	stale, err := t.kvOf(left).Range(t.ctx, &pb.RangeRequest{Key: t.key("a"), Serializable: true})
	t.noError("serializable range", err)
	eqBytes(t, "value", stale.Kvs[0].Value, []byte("1"))
	found, err := t.maintenanceOf(left).Status(t.ctx, &pb.StatusRequest{})
	t.noError("status", err)
	eq(t, "leader", found.Leader, 0)
	eqSlice(t, "errors", found.Errors, []string{textNoLeader})
	again := t.watchOf(left, "hasleader", "true")
	select {
	case <-again.got:
	case <-time.After(answerLimit):
		t.fail("a new watch with hasleader was let in")
	}
	t.refused(<-again.end, codes.Unavailable, textNoLeader)
	select {
	case answer, open := <-plain.got:
		t.fail("a watch without hasleader: %t %v", open, answer)
	default:
	}
	for member := 1; member < len(t.s.endpoints); member++ {
		t.control("start", member)
	}
	t.writable()
	t.put("a", "3")
	for {
		for _, event := range plain.nextWithin(30 * time.Second).Events {
			if string(event.Kv.Value) == "3" {
				return
			}
			eqBytes(t, "only what was tried before", event.Kv.Value, []byte("2"))
		}
	}
}

// faultLeaderKilled: what was acknowledged before the kill is there after it, at the same revision.
func faultLeaderKilled(t *T) {
	leader := t.leader()
	other := (leader + 1) % len(t.s.endpoints)
	stream := t.watchOf(other)
	stream.create(t.watchAll())
	stream.created(0)
	acknowledged := map[string]int64{}
	for i := range 50 {
		name := fmt.Sprintf("k%02d", i)
		written, err := t.kvOf(leader).Put(t.ctx, &pb.PutRequest{Key: t.key(name), Value: []byte("x")})
		t.noError("put", err)
		acknowledged[name] = written.Header.Revision
	}
	t.control("kill", leader)
	defer t.writable()
	defer t.control("start", leader)
	var found *pb.RangeResponse
	t.until("reads", func() bool {
		ctx, cancel := context.WithTimeout(t.ctx, 2*time.Second)
		defer cancel()
		answer, err := t.kvOf(other).Range(ctx, t.all())
		found = answer
		return err == nil
	})
	eq(t, "keys", len(found.Kvs), 50)
	for i, name := range t.names(found.Kvs) {
		eq(t, name, found.Kvs[i].ModRevision, acknowledged[name])
	}
	eq(t, "events on the other member", len(stream.events(0, 50)), 50)
}

func faultLease(t *T) {
	leader := t.leader()
	other := (leader + 1) % len(t.s.endpoints)
	granted, err := pb.NewLeaseClient(t.conn(other)).LeaseGrant(t.ctx, &pb.LeaseGrantRequest{TTL: 60})
	t.noError("grant", err)
	_, err = t.kvOf(other).Put(t.ctx, &pb.PutRequest{Key: t.key("a"), Lease: granted.ID})
	t.noError("put", err)
	t.control("kill", leader)
	defer t.writable()
	defer t.control("start", leader)
	var renewed *pb.LeaseKeepAliveResponse
	t.until("a renewal", func() bool {
		ctx, cancel := context.WithTimeout(t.ctx, 3*time.Second)
		defer cancel()
		stream, err := pb.NewLeaseClient(t.conn(other)).LeaseKeepAlive(ctx)
		if err != nil || stream.Send(&pb.LeaseKeepAliveRequest{ID: granted.ID}) != nil {
			return false
		}
		renewed, err = stream.Recv()
		return err == nil
	})
	eq(t, "ttl", renewed.TTL, 60)
	found, err := t.kvOf(other).Range(t.ctx, &pb.RangeRequest{Key: t.key("a")})
	t.noError("range", err)
	eq(t, "its key", found.Count, 1)
	_, err = pb.NewLeaseClient(t.conn(other)).LeaseRevoke(t.ctx, &pb.LeaseRevokeRequest{ID: granted.ID})
	t.noError("revoke", err)
}

func faultRestart(t *T) {
	member := (t.leader() + 1) % len(t.s.endpoints)
	from := t.put("a", "1").Header.Revision
	t.put("a", "2")
	t.control("kill", member)
	written, err := t.kvOf((member+1)%len(t.s.endpoints)).Put(t.ctx, &pb.PutRequest{Key: t.key("a"), Value: []byte("3")})
	t.noError("put without it", err)
	t.control("start", member)
	t.writable()
	stream := t.watchOf(member)
	stream.create(&pb.WatchCreateRequest{Key: t.key("a"), StartRevision: from})
	stream.created(0)
	eqSlice(t, "events", t.told(stream.events(0, 3)), []string{"+a=1", "+a=2", "+a=3"})
	at, err := t.kvOf(member).Range(t.ctx, &pb.RangeRequest{Key: t.key("a"), Revision: written.Header.Revision - 1})
	t.noError("range", err)
	eqBytes(t, "the state before", at.Kvs[0].Value, []byte("2"))
}

// faultNoSpace fills the store. etcd applies the write that crosses its quota and answers ErrNoSpace for it, so
// whether that one is there is not asked.
func faultNoSpace(t *T) {
	value := make([]byte, 512*1024)
	var err error
	for i := 0; err == nil; i++ {
		_, err = t.kv().Put(t.ctx, &pb.PutRequest{Key: t.key(fmt.Sprintf("fill%d", i)), Value: value})
	}
	t.refused(err, codes.ResourceExhausted, textNoSpace)
	var alarms []*pb.AlarmMember
	t.until("the alarm", func() bool {
		found, err := t.maintenance().Alarm(t.ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_GET})
		t.noError("alarm", err)
		alarms = found.Alarms
		return len(alarms) > 0
	})
	eq(t, "alarm", alarms[0].Alarm, pb.AlarmType_NOSPACE)
	for member := range t.s.endpoints {
		t.until("refused by every member", func() bool {
			_, err := t.kvOf(member).Put(t.ctx, &pb.PutRequest{Key: t.key("a"), Value: []byte("x")})
			return status.Code(err) == codes.ResourceExhausted
		})
		_, err := t.kvOf(member).Put(t.ctx, &pb.PutRequest{Key: t.key("a"), Value: []byte("x")})
		t.refused(err, codes.ResourceExhausted, textNoSpace)
		_, err = pb.NewLeaseClient(t.conn(member)).LeaseGrant(t.ctx, &pb.LeaseGrantRequest{TTL: 60})
		t.refused(err, codes.ResourceExhausted, textNoSpace)
		_, err = t.kvOf(member).Txn(t.ctx, &pb.TxnRequest{Success: ops(opPut(t.key("a"), []byte("x")))})
		t.refused(err, codes.ResourceExhausted, textNoSpace)
	}
	t.check("reads work", t.get(&pb.RangeRequest{Key: t.key("fill"), RangeEnd: t.end(), CountOnly: true}).Count > 0)
	gone, err := t.kv().DeleteRange(t.ctx, &pb.DeleteRangeRequest{Key: t.key(""), RangeEnd: t.end()})
	t.noError("deletes work", err)
	_, err = t.kv().Compact(t.ctx, &pb.CompactionRequest{Revision: gone.Header.Revision, Physical: true})
	t.noError("compaction works", err)
	for member := range t.s.endpoints {
		_, err := t.maintenanceOf(member).Defragment(t.ctx, &pb.DefragmentRequest{})
		t.noError("defragment", err)
	}
	t.until("writes again", func() bool {
		// Each member may have raised an alarm of its own.
		found, err := t.maintenance().Alarm(t.ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_GET})
		t.noError("alarm", err)
		for _, alarm := range found.Alarms {
			_, err = t.maintenance().Alarm(t.ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: alarm.MemberID, Alarm: alarm.Alarm})
			t.noError("disarm", err)
		}
		_, err = t.kv().Put(t.ctx, &pb.PutRequest{Key: t.key("a"), Value: []byte("x")})
		return err == nil
	})
}
