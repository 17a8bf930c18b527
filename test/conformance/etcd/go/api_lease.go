package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
)

const (
	textLeaseExists = "etcdserver: lease already exists"
	textTTLTooLarge = "etcdserver: too large lease TTL"
)

var leaseScenarios = []scenario{
	{name: "lease/grant-draws-a-positive-id", run: leaseGrant},
	{name: "lease/a-chosen-id-is-taken-once", run: leaseChosenID},
	{name: "lease/a-short-ttl-is-raised-and-told", run: leaseShort},
	{name: "lease/a-huge-ttl-is-refused", run: leaseHuge},
	{name: "lease/revoke-deletes-its-keys-in-one-revision", run: leaseRevoke},
	{name: "lease/revoke-without-keys-uses-no-revision", run: leaseRevokeEmpty},
	{name: "lease/unknown-leases", run: leaseUnknown},
	{name: "lease/keep-alive-answers-each-request-in-order", run: leaseKeepAlive},
	{name: "lease/keep-alive-of-an-unknown-lease-keeps-the-stream", run: leaseKeepAliveUnknown},
	{name: "lease/keep-alive-ends-with-the-half-closed-stream", run: leaseKeepAliveEnd},
	{name: "lease/keep-alive-on-every-member", run: leaseKeepAliveMembers},
	{name: "lease/time-to-live-and-its-keys", run: leaseTimeToLive},
	{name: "lease/list-is-ordered-by-expiry", run: leaseList},
	{name: "lease/expiry-deletes-the-keys-in-one-revision", run: leaseExpiry},
	{name: "lease/a-renewed-lease-does-not-expire", run: leaseRenewed},
	{name: "lease/keys-written-and-deleted-leave-the-list", run: leaseKeyList},
}

func (t *T) grantOf(request *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return t.lease().LeaseGrant(t.ctx, request)
}

func (t *T) revoke(id int64) *pb.LeaseRevokeResponse {
	answer, err := t.lease().LeaseRevoke(t.ctx, &pb.LeaseRevokeRequest{ID: id})
	t.noError("revoke", err)
	return answer
}

func (t *T) timeToLive(id int64, keys bool) *pb.LeaseTimeToLiveResponse {
	answer, err := t.lease().LeaseTimeToLive(t.ctx, &pb.LeaseTimeToLiveRequest{ID: id, Keys: keys})
	t.noError("time to live", err)
	return answer
}

func (t *T) putLeased(name string, lease int64) {
	t.putOf(&pb.PutRequest{Key: t.key(name), Value: []byte(name), Lease: lease})
}

func leaseGrant(t *T) {
	t.undisturbed("a grant uses no revision", func() bool {
		before := t.put("a", "1").Header.Revision
		answer, err := t.grantOf(&pb.LeaseGrantRequest{TTL: 60})
		t.noError("grant", err)
		t.check("positive id", answer.ID > 0)
		eq(t, "ttl", answer.TTL, 60)
		eq(t, "error", answer.Error, "")
		t.revoke(answer.ID)
		return answer.Header.Revision == before
	})
	eq(t, "two ids differ", t.grant(60) == t.grant(60), false)
}

func leaseChosenID(t *T) {
	id := time.Now().UnixNano()
	answer, err := t.grantOf(&pb.LeaseGrantRequest{ID: id, TTL: 60})
	t.noError("grant", err)
	eq(t, "id", answer.ID, id)
	_, err = t.grantOf(&pb.LeaseGrantRequest{ID: id, TTL: 60})
	t.refused(err, codes.FailedPrecondition, textLeaseExists)
	t.revoke(id)
	answer, err = t.grantOf(&pb.LeaseGrantRequest{ID: id, TTL: 60})
	t.noError("grant after revoke", err)
	eq(t, "id", answer.ID, id)
	t.revoke(id)
}

// With an election timeout of 1 s the shortest lease is 2 s; a server may have another.
func leaseShort(t *T) {
	for _, seconds := range []int64{1, 0, -5} {
		answer, err := t.grantOf(&pb.LeaseGrantRequest{TTL: seconds})
		t.noError("grant", err)
		t.check(fmt.Sprintf("ttl %d became %d", seconds, answer.TTL), answer.TTL >= max(1, seconds) && answer.TTL <= 10)
		if !t.s.lockstep {
			eq(t, "ttl", answer.TTL, 2)
		}
		eq(t, "granted ttl", t.timeToLive(answer.ID, false).GrantedTTL, answer.TTL)
		t.revoke(answer.ID)
	}
}

func leaseHuge(t *T) {
	_, err := t.grantOf(&pb.LeaseGrantRequest{TTL: 9_000_000_001})
	t.refused(err, codes.OutOfRange, textTTLTooLarge)
	answer, err := t.grantOf(&pb.LeaseGrantRequest{TTL: 9_000_000_000})
	t.noError("the largest", err)
	eq(t, "ttl", answer.TTL, 9_000_000_000)
	t.revoke(answer.ID)
}

func leaseRevoke(t *T) {
	lease := t.grant(60)
	for _, name := range []string{"d", "b", "e", "a", "c"} {
		t.putLeased(name, lease)
	}
	t.put("other", "stays")
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key(""), RangeEnd: t.end()})
	stream.created(0)
	revision := t.revoke(lease).Header.Revision
	answer := stream.next()
	eq(t, "events in one response", len(answer.Events), 5)
	for i, event := range answer.Events {
		eq(t, "type", event.Type, mvccpb.DELETE)
		eqBytes(t, "sorted", event.Kv.Key, t.key(string("abcde"[i])))
		eq(t, "one revision", event.Kv.ModRevision, answer.Events[0].Kv.ModRevision)
	}
	t.check("the answer's revision is not older", revision >= answer.Events[0].Kv.ModRevision)
	_, err := t.lease().LeaseRevoke(t.ctx, &pb.LeaseRevokeRequest{ID: lease})
	t.refused(err, codes.NotFound, textLeaseNotFound)
	eqSlice(t, "left", t.names(t.get(t.all()).Kvs), []string{"other"})
}

func leaseRevokeEmpty(t *T) {
	t.undisturbed("revoking a lease without keys uses no revision", func() bool {
		lease := t.grant(60)
		before := t.put("a", "1").Header.Revision
		return t.revoke(lease).Header.Revision == before
	})
}

func leaseUnknown(t *T) {
	const unknown = 123_456_789
	_, err := t.lease().LeaseRevoke(t.ctx, &pb.LeaseRevokeRequest{ID: unknown})
	t.refused(err, codes.NotFound, textLeaseNotFound)
	_, err = t.lease().LeaseRevoke(t.ctx, &pb.LeaseRevokeRequest{})
	t.refused(err, codes.NotFound, textLeaseNotFound)
	found := t.timeToLive(unknown, true)
	eq(t, "ttl", found.TTL, -1)
	eq(t, "granted ttl", found.GrantedTTL, 0)
	eq(t, "keys", len(found.Keys), 0)
	eq(t, "id", found.ID, unknown)
}

func (t *T) keepAlive(member int) pb.Lease_LeaseKeepAliveClient {
	stream, err := pb.NewLeaseClient(t.conn(member)).LeaseKeepAlive(t.ctx)
	t.noError("keep-alive", err)
	return stream
}

func (t *T) renewed(stream pb.Lease_LeaseKeepAliveClient) *pb.LeaseKeepAliveResponse {
	answer, err := stream.Recv()
	t.noError("keep-alive", err)
	return answer
}

func leaseKeepAlive(t *T) {
	leases := []int64{t.grant(60), t.grant(70), t.grant(80)}
	stream := t.keepAlive(0)
	for range 5 {
		for _, id := range leases {
			t.noError("send", stream.Send(&pb.LeaseKeepAliveRequest{ID: id}))
		}
	}
	for range 5 {
		for i, id := range leases {
			answer := t.renewed(stream)
			eq(t, "id", answer.ID, id)
			eq(t, "ttl", answer.TTL, int64(60+10*i))
			t.check("header", answer.Header.Revision > 0 && answer.Header.ClusterId != 0)
		}
	}
}

func leaseKeepAliveUnknown(t *T) {
	good, revoked := t.grant(60), t.grant(60)
	t.revoke(revoked)
	stream := t.keepAlive(0)
	for _, id := range []int64{987_654_321, good, revoked, good} {
		t.noError("send", stream.Send(&pb.LeaseKeepAliveRequest{ID: id}))
		answer := t.renewed(stream)
		eq(t, "id", answer.ID, id)
		eq(t, "ttl", answer.TTL, map[bool]int64{true: 60, false: 0}[id == good])
	}
}

func leaseKeepAliveEnd(t *T) {
	lease := t.grant(60)
	stream := t.keepAlive(0)
	t.noError("send", stream.Send(&pb.LeaseKeepAliveRequest{ID: lease}))
	eq(t, "ttl", t.renewed(stream).TTL, 60)
	t.noError("close", stream.CloseSend())
	_, err := stream.Recv()
	eq(t, "the end", err, io.EOF)
}

func leaseKeepAliveMembers(t *T) {
	lease := t.grant(60)
	for member := range t.s.endpoints {
		stream := t.keepAlive(member)
		t.noError("send", stream.Send(&pb.LeaseKeepAliveRequest{ID: lease}))
		eq(t, "ttl", t.renewed(stream).TTL, 60)
	}
}

func leaseTimeToLive(t *T) {
	lease := t.grant(60)
	t.putLeased("b", lease)
	t.putLeased("a", lease)
	for member := range t.s.endpoints {
		found, err := pb.NewLeaseClient(t.conn(member)).LeaseTimeToLive(t.ctx, &pb.LeaseTimeToLiveRequest{ID: lease, Keys: true})
		t.noError("time to live", err)
		eq(t, "id", found.ID, lease)
		eq(t, "granted ttl", found.GrantedTTL, 60)
		t.check(fmt.Sprintf("ttl %d", found.TTL), found.TTL > 50 && found.TTL <= 60)
		keys := []string{string(found.Keys[0]), string(found.Keys[1])}
		slices.Sort(keys)
		eqSlice(t, "keys", keys, []string{t.prefix + "a", t.prefix + "b"})
	}
	eq(t, "keys unless asked", len(t.timeToLive(lease, false).Keys), 0)
}

func leaseList(t *T) {
	long, short, middle := t.grant(5000), t.grant(3000), t.grant(4000)
	// etcd's other members list them in no order: only the leader counts the time.
	answer, err := pb.NewLeaseClient(t.conn(t.leader())).LeaseLeases(t.ctx, &pb.LeaseLeasesRequest{})
	t.noError("leases", err)
	var order []int64
	for _, one := range answer.Leases {
		if one.ID == long || one.ID == short || one.ID == middle {
			order = append(order, one.ID)
		}
	}
	if t.s.lockstep {
		// By id: only the leader knows deadlines, and any member lists.
		byID := []int64{short, middle, long}
		slices.Sort(byID)
		eqSlice(t, "by id", order, byID)
		return
	}
	eqSlice(t, "by expiry", order, []int64{short, middle, long})
}

func leaseExpiry(t *T) {
	started := time.Now()
	granted, err := t.grantOf(&pb.LeaseGrantRequest{TTL: 2})
	t.noError("grant", err)
	t.putLeased("b", granted.ID)
	t.putLeased("a", granted.ID)
	stream := t.watch()
	stream.create(&pb.WatchCreateRequest{Key: t.key(""), RangeEnd: t.end(), PrevKv: true})
	stream.created(0)
	answer := stream.nextWithin(20 * time.Second)
	t.check("not before its time", time.Since(started) >= time.Duration(granted.TTL)*time.Second)
	eq(t, "events in one response", len(answer.Events), 2)
	for i, event := range answer.Events {
		eq(t, "type", event.Type, mvccpb.DELETE)
		eqBytes(t, "sorted", event.Kv.Key, t.key([]string{"a", "b"}[i]))
		eq(t, "prev_kv names the lease", event.PrevKv.Lease, granted.ID)
	}
	eq(t, "ttl afterwards", t.timeToLive(granted.ID, false).TTL, -1)
	_, err = t.kv().Put(t.ctx, &pb.PutRequest{Key: t.key("c"), Lease: granted.ID})
	t.refused(err, codes.NotFound, textLeaseNotFound)
	alive := t.keepAlive(0)
	t.noError("send", alive.Send(&pb.LeaseKeepAliveRequest{ID: granted.ID}))
	eq(t, "ttl of its renewal", t.renewed(alive).TTL, 0)
}

func leaseRenewed(t *T) {
	granted, err := t.grantOf(&pb.LeaseGrantRequest{TTL: 2})
	t.noError("grant", err)
	t.putLeased("a", granted.ID)
	stream := t.keepAlive(len(t.s.endpoints) - 1)
	for end := time.Now().Add(3 * time.Duration(granted.TTL) * time.Second); time.Now().Before(end); {
		t.noError("send", stream.Send(&pb.LeaseKeepAliveRequest{ID: granted.ID}))
		eq(t, "ttl", t.renewed(stream).TTL, granted.TTL)
		pause(t.ctx, 400*time.Millisecond)
	}
	t.check("its key is there after three times its ttl", t.one("a") != nil)
	t.revoke(granted.ID)
}

func leaseKeyList(t *T) {
	lease := t.grant(60)
	t.putLeased("a", lease)
	t.putLeased("b", lease)
	t.putLeased("c", lease)
	t.del("a")
	t.put("b", "detached")
	found := t.timeToLive(lease, true)
	eq(t, "keys", len(found.Keys), 1)
	eqBytes(t, "key", found.Keys[0], t.key("c"))
}
