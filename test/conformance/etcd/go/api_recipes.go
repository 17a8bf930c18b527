package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var recipeServiceScenarios = []scenario{
	{name: "v3lock/lock-and-unlock", run: lockService},
	{name: "v3lock/the-next-one-gets-it-after-unlock", run: lockWaits},
	{name: "v3lock/the-next-one-gets-it-after-revoke", run: lockRevoke},
	{name: "v3lock/a-lease-that-ended-gets-no-lock", run: lockExpired},
	{name: "v3lock/a-canceled-wait-leaves-nothing-behind", run: lockCanceled},
	{name: "v3election/campaign-proclaim-leader-resign", run: electionService},
	{name: "v3election/the-next-one-leads-after-resign", run: electionNext},
	{name: "v3election/observe-sees-each-leader", run: electionObserve},
	{name: "v3election/no-leader-is-an-error", run: electionNoLeader},
	{name: "v3election/a-request-without-leader-is-refused", run: electionMissing},
	{name: "v3election/a-former-leader-cannot-proclaim", run: electionFormer},
}

func (t *T) lockClient(member int) v3lockpb.LockClient { return v3lockpb.NewLockClient(t.conn(member)) }
func (t *T) electionClient(member int) v3electionpb.ElectionClient {
	return v3electionpb.NewElectionClient(t.conn(member))
}

func (t *T) lock(lease int64) *v3lockpb.LockResponse {
	answer, err := t.lockClient(0).Lock(t.ctx, &v3lockpb.LockRequest{Name: t.key("lock"), Lease: lease})
	t.noError("lock", err)
	return answer
}

func (t *T) unlock(key []byte) {
	_, err := t.lockClient(0).Unlock(t.ctx, &v3lockpb.UnlockRequest{Key: key})
	t.noError("unlock", err)
}

func lockService(t *T) {
	lease := t.grant(60)
	held := t.lock(lease)
	eqBytes(t, "the key names the lease", held.Key, fmt.Appendf(nil, "%s/%x", t.key("lock"), lease))
	owner := t.get(&pb.RangeRequest{Key: held.Key})
	eq(t, "the key is there", owner.Count, 1)
	eq(t, "lease", owner.Kvs[0].Lease, lease)
	t.check("header", held.Header.Revision >= owner.Kvs[0].CreateRevision)
	again := t.lock(lease)
	eqBytes(t, "locking twice is locking once", again.Key, held.Key)
	t.unlock(held.Key)
	eq(t, "the key is gone", t.get(&pb.RangeRequest{Key: held.Key}).Count, 0)
	t.unlock(held.Key)
	unleased := t.lock(0)
	found := t.get(&pb.RangeRequest{Key: unleased.Key})
	t.check("without a lease it draws one", found.Kvs[0].Lease != 0)
	t.revoke(found.Kvs[0].Lease)
}

// locking starts a Lock call; its outcome comes through the channel.
func (t *T) locking(ctx context.Context, member int, lease int64) <-chan error {
	outcome := make(chan error, 1)
	go func() {
		_, err := t.lockClient(member).Lock(ctx, &v3lockpb.LockRequest{Name: t.key("lock"), Lease: lease})
		outcome <- err
	}()
	return outcome
}

func (t *T) waiters(n int64) {
	t.until("the waiter has its place", func() bool { return t.get(t.all()).Count == n })
}

func (t *T) pending(outcome <-chan error) {
	select {
	case err := <-outcome:
		t.fail("did not wait: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
}

func (t *T) outcome(outcome <-chan error) error {
	select {
	case err := <-outcome:
		return err
	case <-time.After(answerLimit):
		t.fail("still waiting")
		return nil
	}
}

func lockWaits(t *T) {
	first, second, third := t.grant(60), t.grant(60), t.grant(60)
	held := t.lock(first)
	waiting := t.locking(t.ctx, 1, second)
	t.waiters(2)
	last := t.locking(t.ctx, 2, third)
	t.waiters(3)
	t.pending(waiting)
	t.unlock(held.Key)
	t.noError("the second one", t.outcome(waiting))
	t.pending(last)
	t.revoke(second)
	t.noError("the third one", t.outcome(last))
}

func lockRevoke(t *T) {
	first, second := t.grant(60), t.grant(60)
	t.lock(first)
	waiting := t.locking(t.ctx, 1, second)
	t.waiters(2)
	t.pending(waiting)
	t.revoke(first)
	t.noError("the second one", t.outcome(waiting))
}

func lockExpired(t *T) {
	lease := t.grant(60)
	t.revoke(lease)
	_, err := t.lockClient(0).Lock(t.ctx, &v3lockpb.LockRequest{Name: t.key("lock"), Lease: lease})
	t.check("refused", err != nil)
	t.check("text: "+status.Convert(err).Message(), strings.Contains(status.Convert(err).Message(), "requested lease not found"))
	first, second := t.grant(60), t.grant(60)
	held := t.lock(first)
	waiting := t.locking(t.ctx, 1, second)
	t.waiters(2)
	t.revoke(second)
	t.unlock(held.Key)
	t.check("a waiter whose lease ended gets no lock", t.outcome(waiting) != nil)
}

func lockCanceled(t *T) {
	first, second := t.grant(60), t.grant(60)
	t.lock(first)
	ctx, cancel := context.WithCancel(t.ctx)
	waiting := t.locking(ctx, 1, second)
	t.waiters(2)
	cancel()
	eq(t, "code", status.Code(t.outcome(waiting)), codes.Canceled)
	t.waiters(1)
}

func (t *T) campaign(member int, lease int64, value string) *v3electionpb.LeaderKey {
	answer, err := t.electionClient(member).Campaign(t.ctx, &v3electionpb.CampaignRequest{Name: t.key("election"), Lease: lease, Value: []byte(value)})
	t.noError("campaign", err)
	return answer.Leader
}

func (t *T) leads1(want string) {
	answer, err := t.electionClient(1).Leader(t.ctx, &v3electionpb.LeaderRequest{Name: t.key("election")})
	t.noError("leader", err)
	eqBytes(t, "leader", answer.Kv.Value, []byte(want))
}

func electionService(t *T) {
	lease := t.grant(60)
	leader := t.campaign(0, lease, "one")
	eqBytes(t, "name", leader.Name, t.key("election"))
	eqBytes(t, "key", leader.Key, fmt.Appendf(nil, "%s/%x", t.key("election"), lease))
	eq(t, "lease", leader.Lease, lease)
	eq(t, "rev is the create revision", leader.Rev, t.get(&pb.RangeRequest{Key: leader.Key}).Kvs[0].CreateRevision)
	t.leads1("one")
	_, err := t.electionClient(0).Proclaim(t.ctx, &v3electionpb.ProclaimRequest{Leader: leader, Value: []byte("two")})
	t.noError("proclaim", err)
	t.leads1("two")
	again := t.campaign(0, lease, "three")
	eq(t, "campaigning again is no new term", again.Rev, leader.Rev)
	t.leads1("three")
	_, err = t.electionClient(0).Resign(t.ctx, &v3electionpb.ResignRequest{Leader: leader})
	t.noError("resign", err)
	eq(t, "the key is gone", t.get(&pb.RangeRequest{Key: leader.Key}).Count, 0)
}

func electionNext(t *T) {
	first, second := t.grant(60), t.grant(60)
	leader := t.campaign(0, first, "first")
	var next *v3electionpb.LeaderKey
	outcome := make(chan error, 1)
	go func() {
		answer, err := t.electionClient(1).Campaign(t.ctx, &v3electionpb.CampaignRequest{Name: t.key("election"), Lease: second, Value: []byte("second")})
		next = answer.GetLeader()
		outcome <- err
	}()
	t.waiters(2)
	t.pending(outcome)
	t.leads1("first")
	_, err := t.electionClient(2).Resign(t.ctx, &v3electionpb.ResignRequest{Leader: leader})
	t.noError("resign", err)
	t.noError("the second one", t.outcome(outcome))
	t.check("the term's token is larger", next.Rev > leader.Rev)
	t.leads1("second")
}

func electionObserve(t *T) {
	lease := t.grant(60)
	stream, err := t.electionClient(0).Observe(t.ctx, &v3electionpb.LeaderRequest{Name: t.key("election")})
	t.noError("observe", err)
	see := func(want string) {
		answer, err := stream.Recv()
		t.noError("observe", err)
		eqBytes(t, "observed", answer.Kv.Value, []byte(want))
		t.check("header", answer.Header.Revision >= answer.Kv.ModRevision)
	}
	leader := t.campaign(0, lease, "one")
	see("one")
	_, err = t.electionClient(0).Proclaim(t.ctx, &v3electionpb.ProclaimRequest{Leader: leader, Value: []byte("two")})
	t.noError("proclaim", err)
	see("two")
	_, err = t.electionClient(0).Resign(t.ctx, &v3electionpb.ResignRequest{Leader: leader})
	t.noError("resign", err)
	t.campaign(1, t.grant(60), "three")
	see("three")
}

func electionNoLeader(t *T) {
	_, err := t.electionClient(0).Leader(t.ctx, &v3electionpb.LeaderRequest{Name: t.key("election")})
	t.refused(err, codes.Unknown, "election: no leader")
}

func electionMissing(t *T) {
	_, err := t.electionClient(0).Proclaim(t.ctx, &v3electionpb.ProclaimRequest{Value: []byte("x")})
	t.refused(err, codes.Unknown, `"leader" field must be provided`)
	_, err = t.electionClient(0).Resign(t.ctx, &v3electionpb.ResignRequest{})
	t.refused(err, codes.Unknown, `"leader" field must be provided`)
}

func electionFormer(t *T) {
	leader := t.campaign(0, t.grant(60), "one")
	_, err := t.electionClient(0).Resign(t.ctx, &v3electionpb.ResignRequest{Leader: leader})
	t.noError("resign", err)
	_, err = t.electionClient(0).Proclaim(t.ctx, &v3electionpb.ProclaimRequest{Leader: leader, Value: []byte("x")})
	t.refused(err, codes.Unknown, "election: not leader")
	eq(t, "nothing written", t.get(t.all()).Count, 0)
}
