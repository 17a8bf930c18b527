package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

const (
	textAuthOff       = "etcdserver: authentication is not enabled"
	textNotLeader     = "etcdserver: not leader"
	textBadTransferee = "etcdserver: bad leader transferee"
	textBadURLs       = "etcdserver: given member URLs are invalid"
	textURLExists     = "etcdserver: Peer URLs already exists"
	textNoMember      = "etcdserver: member not found"
)

var maintenanceScenarios = []scenario{
	{name: "maintenance/status-of-each-member", run: maintenanceStatus},
	{name: "maintenance/hash-kv-is-the-same-on-all-members", run: maintenanceHashKV, alone: true},
	{name: "maintenance/hash-kv-at-a-future-revision-is-refused", run: maintenanceHashFuture},
	{name: "maintenance/hash", run: maintenanceHash},
	{name: "maintenance/snapshot-ends-with-its-sha256", run: maintenanceSnapshot},
	{name: "maintenance/no-alarms", run: maintenanceAlarms},
	{name: "maintenance/defragment", run: maintenanceDefragment},
	{name: "maintenance/move-leader", run: maintenanceMoveLeader, alone: true},
	{name: "cluster/member-list", run: clusterList},
	{name: "cluster/refused-changes", run: clusterRefused},
	{name: "auth/is-not-enabled", run: authOff},
	{name: "auth/changes-are-refused", run: authRefused, lockstepOnly: true},
	{name: "health/check-and-watch", run: healthService},
	{name: "reflection/lists-the-services", run: reflectionService, lockstepOnly: true},
	{name: "grpc/unknown-methods-are-unimplemented", run: grpcUnknown},
	{name: "grpc/deadlines-are-kept", run: grpcDeadline},
	{name: "grpc/malformed-messages-are-refused", run: grpcMalformed},
}

var semantic = regexp.MustCompile(`^3\.6\.\d+$`)

func maintenanceStatus(t *T) {
	t.put("a", "1")
	var clusters, members, leaders []uint64
	for member := range t.s.endpoints {
		found, err := t.maintenanceOf(member).Status(t.ctx, &pb.StatusRequest{})
		t.noError("status", err)
		// Clients and kube-apiserver decide by it what the server can do.
		t.check("version is one of 3.6: "+found.Version, semantic.MatchString(found.Version))
		t.check("db_size", found.DbSize > 0 && found.DbSizeInUse > 0 && found.DbSizeInUse <= found.DbSize)
		t.check("raft_index", found.RaftIndex > 0 && found.RaftAppliedIndex > 0 && found.RaftAppliedIndex <= found.RaftIndex)
		eq(t, "raft_term", found.RaftTerm, found.Header.RaftTerm)
		t.check("header.revision", found.Header.Revision > 0)
		eq(t, "is_learner", found.IsLearner, false)
		eq(t, "errors", len(found.Errors), 0)
		t.check("storage_version: "+found.StorageVersion, found.StorageVersion == "3.6.0")
		clusters = append(clusters, found.Header.ClusterId)
		members = append(members, found.Header.MemberId)
		leaders = append(leaders, found.Leader)
	}
	eq(t, "clusters", len(slices.Compact(clusters)), 1)
	eq(t, "leaders", len(slices.Compact(leaders)), 1)
	t.check("the leader is a member", slices.Contains(members, leaders[0]))
	slices.Sort(members)
	eq(t, "members", len(slices.Compact(members)), len(t.s.endpoints))
}

func maintenanceHashKV(t *T) {
	t.ten()
	t.del("k3")
	revision := t.put("a", "1").Header.Revision
	var first *pb.HashKVResponse
	for member := range t.s.endpoints {
		// A linearizable read brings the member up to date first.
		_, err := t.kvOf(member).Range(t.ctx, t.all())
		t.noError("range", err)
		found, err := t.maintenanceOf(member).HashKV(t.ctx, &pb.HashKVRequest{Revision: revision})
		t.noError("hashkv", err)
		eq(t, "hash_revision", found.HashRevision, revision)
		t.check("header", found.Header.Revision >= revision && found.Header.MemberId != 0)
		if first == nil {
			first = found
		}
		eq(t, "hash", found.Hash, first.Hash)
		eq(t, "compact_revision", found.CompactRevision, first.CompactRevision)
	}
	t.put("a", "2")
	again, err := t.maintenance().HashKV(t.ctx, &pb.HashKVRequest{Revision: revision})
	t.noError("hashkv", err)
	eq(t, "a revision's hash does not change", again.Hash, first.Hash)
	now, err := t.maintenance().HashKV(t.ctx, &pb.HashKVRequest{})
	t.noError("hashkv", err)
	t.check("revision 0 is the present", now.HashRevision > revision)
	t.check("another state has another hash", now.Hash != first.Hash)
}

func maintenanceHashFuture(t *T) {
	now := t.put("a", "1").Header.Revision
	_, err := t.maintenance().HashKV(t.ctx, &pb.HashKVRequest{Revision: now + 1_000_000})
	t.refused(err, codes.OutOfRange, textFuture)
}

func maintenanceHash(t *T) {
	t.put("a", "1")
	found, err := t.maintenance().Hash(t.ctx, &pb.HashRequest{})
	t.noError("hash", err)
	t.check("hash and header", found.Hash != 0 && found.Header.Revision > 0)
}

// maintenanceSnapshot checks what `etcdctl snapshot save` relies on: the last message holds nothing but the SHA-256 of
// all blobs before it.
func maintenanceSnapshot(t *T) {
	t.ten()
	stream, err := t.maintenance().Snapshot(t.ctx, &pb.SnapshotRequest{})
	t.noError("snapshot", err)
	var all bytes.Buffer
	var remaining []uint64
	for {
		part, err := stream.Recv()
		if err == io.EOF {
			break
		}
		t.noError("snapshot", err)
		all.Write(part.Blob)
		remaining = append(remaining, part.RemainingBytes)
	}
	t.check("a body and a trailer", all.Len() > sha256.Size && len(remaining) >= 2)
	body, trailer := all.Bytes()[:all.Len()-sha256.Size], all.Bytes()[all.Len()-sha256.Size:]
	sum := sha256.Sum256(body)
	eqBytes(t, "sha256", trailer, sum[:])
	eq(t, "whole pages", len(body)%512, 0)
	eq(t, "nothing remains at the end", remaining[len(remaining)-1], 0)
	t.check("what remains gets less", slices.IsSortedFunc(remaining, func(a, b uint64) int { return int(int64(b) - int64(a)) }))
}

func maintenanceAlarms(t *T) {
	for _, alarm := range []pb.AlarmType{pb.AlarmType_NONE, pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT} {
		found, err := t.maintenance().Alarm(t.ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_GET, Alarm: alarm})
		t.noError("alarm", err)
		eq(t, "alarms", len(found.Alarms), 0)
		t.check("header", found.Header.ClusterId != 0 && found.Header.MemberId != 0)
	}
	answer, err := t.maintenance().Alarm(t.ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE})
	t.noError("disarming nothing", err)
	eq(t, "alarms", len(answer.Alarms), 0)
}

func maintenanceDefragment(t *T) {
	t.ten()
	for member := range t.s.endpoints {
		_, err := t.maintenanceOf(member).Defragment(t.ctx, &pb.DefragmentRequest{})
		t.noError("defragment", err)
	}
	eq(t, "nothing is lost", t.get(t.all()).Count, 10)
}

func maintenanceMoveLeader(t *T) {
	leader := t.leader()
	target, _ := t.leads((leader + 1) % len(t.s.endpoints))
	if len(t.s.endpoints) < 2 {
		t.skip("one member has nobody to give leadership to")
	}
	_, err := t.maintenanceOf((leader+1)%len(t.s.endpoints)).MoveLeader(t.ctx, &pb.MoveLeaderRequest{TargetID: target})
	t.refused(err, codes.FailedPrecondition, textNotLeader)
	_, err = t.maintenanceOf(leader).MoveLeader(t.ctx, &pb.MoveLeaderRequest{TargetID: 12345})
	t.refused(err, codes.FailedPrecondition, textBadTransferee)
	_, err = t.maintenanceOf(leader).MoveLeader(t.ctx, &pb.MoveLeaderRequest{TargetID: target})
	t.noError("move leader", err)
	t.until("the target leads", func() bool { return t.leader() == (leader+1)%len(t.s.endpoints) })
	t.put("a", "1")
}

func clusterList(t *T) {
	var ids []uint64
	for _, linearizable := range []bool{false, true} {
		found, err := t.cluster().MemberList(t.ctx, &pb.MemberListRequest{Linearizable: linearizable})
		t.noError("member list", err)
		eq(t, "members", len(found.Members), len(t.s.endpoints))
		eq(t, "header.revision is not filled", found.Header.Revision, 0)
		t.check("header", found.Header.ClusterId != 0 && found.Header.MemberId != 0 && found.Header.RaftTerm != 0)
		names := map[string]bool{}
		ids = nil
		for _, member := range found.Members {
			t.check("id, name and URLs", member.ID != 0 && member.Name != "" && len(member.PeerURLs) > 0 && len(member.ClientURLs) > 0)
			t.check("URL: "+member.ClientURLs[0], regexp.MustCompile(`^https?://[^/]+:\d+$`).MatchString(member.ClientURLs[0]))
			eq(t, "is_learner", member.IsLearner, false)
			names[member.Name] = true
			ids = append(ids, member.ID)
		}
		eq(t, "different names", len(names), len(found.Members))
	}
	for member := range t.s.endpoints {
		id, _ := t.leads(member)
		t.check("each member is listed with the id that it tells", slices.Contains(ids, id))
	}
}

func clusterRefused(t *T) {
	_, err := t.cluster().MemberRemove(t.ctx, &pb.MemberRemoveRequest{ID: 12345})
	t.refused(err, codes.NotFound, textNoMember)
	_, err = t.cluster().MemberPromote(t.ctx, &pb.MemberPromoteRequest{ID: 12345})
	t.refused(err, codes.NotFound, textNoMember)
	_, err = t.cluster().MemberUpdate(t.ctx, &pb.MemberUpdateRequest{ID: 12345, PeerURLs: []string{"http://127.0.0.1:1"}})
	t.refused(err, codes.NotFound, textNoMember)
	for _, urls := range [][]string{{"not a url"}, {"127.0.0.1:99"}, {}} {
		_, err = t.cluster().MemberAdd(t.ctx, &pb.MemberAddRequest{PeerURLs: urls, IsLearner: true})
		t.refused(err, codes.InvalidArgument, textBadURLs)
	}
	list, err := t.cluster().MemberList(t.ctx, &pb.MemberListRequest{})
	t.noError("member list", err)
	_, err = t.cluster().MemberAdd(t.ctx, &pb.MemberAddRequest{PeerURLs: list.Members[0].PeerURLs, IsLearner: true})
	t.refused(err, codes.FailedPrecondition, textURLExists)
	after, err := t.cluster().MemberList(t.ctx, &pb.MemberListRequest{})
	t.noError("member list", err)
	eq(t, "members", len(after.Members), len(list.Members))
}

func (t *T) auth() pb.AuthClient { return pb.NewAuthClient(t.conn(0)) }

func authOff(t *T) {
	found, err := t.auth().AuthStatus(t.ctx, &pb.AuthStatusRequest{})
	t.noError("status", err)
	eq(t, "enabled", found.Enabled, false)
	_, err = t.auth().Authenticate(t.ctx, &pb.AuthenticateRequest{Name: "root", Password: "x"})
	t.refused(err, codes.FailedPrecondition, textAuthOff)
	_, err = t.auth().AuthDisable(t.ctx, &pb.AuthDisableRequest{})
	t.noError("disabling what is not enabled", err)
}

// Lockstep decides by certificates and policies, not by users of its own.
func authRefused(t *T) {
	_, err := t.auth().AuthEnable(t.ctx, &pb.AuthEnableRequest{})
	t.refused(err, codes.FailedPrecondition, textAuthOff)
	_, err = t.auth().UserAdd(t.ctx, &pb.AuthUserAddRequest{Name: "a", Password: "b"})
	t.refused(err, codes.FailedPrecondition, textAuthOff)
	_, err = t.auth().RoleAdd(t.ctx, &pb.AuthRoleAddRequest{Name: "a"})
	t.refused(err, codes.FailedPrecondition, textAuthOff)
	_, err = t.auth().UserList(t.ctx, &pb.AuthUserListRequest{})
	t.refused(err, codes.FailedPrecondition, textAuthOff)
}

func healthService(t *T) {
	client := grpc_health_v1.NewHealthClient(t.conn(0))
	found, err := client.Check(t.ctx, &grpc_health_v1.HealthCheckRequest{})
	t.noError("check", err)
	eq(t, "status", found.Status, grpc_health_v1.HealthCheckResponse_SERVING)
	_, err = client.Check(t.ctx, &grpc_health_v1.HealthCheckRequest{Service: "no.such.Service"})
	t.refused(err, codes.NotFound, "unknown service")
	stream, err := client.Watch(t.ctx, &grpc_health_v1.HealthCheckRequest{})
	t.noError("watch", err)
	first, err := stream.Recv()
	t.noError("watch", err)
	eq(t, "status", first.Status, grpc_health_v1.HealthCheckResponse_SERVING)
}

func reflectionService(t *T) {
	stream, err := reflection.NewServerReflectionClient(t.conn(0)).ServerReflectionInfo(t.ctx)
	t.noError("reflection", err)
	ask := func(request *reflection.ServerReflectionRequest) *reflection.ServerReflectionResponse {
		t.noError("send", stream.Send(request))
		answer, err := stream.Recv()
		t.noError("reflection", err)
		return answer
	}
	listed := ask(&reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_ListServices{}})
	var names []string
	for _, service := range listed.GetListServicesResponse().GetService() {
		names = append(names, service.Name)
	}
	for _, want := range []string{"etcdserverpb.KV", "etcdserverpb.Watch", "etcdserverpb.Lease", "etcdserverpb.Cluster",
		"etcdserverpb.Maintenance", "etcdserverpb.Auth", "v3lockpb.Lock", "v3electionpb.Election", "grpc.health.v1.Health"} {
		t.check(fmt.Sprintf("%s in %v", want, names), slices.Contains(names, want))
		file := ask(&reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: want}})
		t.check("a file with "+want, len(file.GetFileDescriptorResponse().GetFileDescriptorProto()) > 0)
	}
}

func grpcUnknown(t *T) {
	err := t.conn(0).Invoke(t.ctx, "/etcdserverpb.KV/NoSuchMethod", &pb.RangeRequest{Key: t.key("a")}, &pb.RangeResponse{})
	eq(t, "code of an unknown method", status.Code(err), codes.Unimplemented)
	err = t.conn(0).Invoke(t.ctx, "/no.such.Service/Method", &pb.RangeRequest{Key: t.key("a")}, &pb.RangeResponse{})
	eq(t, "code of an unknown service", status.Code(err), codes.Unimplemented)
	// A client of 3.7 finds out in this way that there is no streamed range.
	stream, err := t.conn(0).NewStream(t.ctx, &grpc.StreamDesc{ServerStreams: true}, "/etcdserverpb.KV/RangeStream")
	t.noError("stream", err)
	t.noError("send", stream.SendMsg(&pb.RangeRequest{Key: t.key("a")}))
	t.noError("close", stream.CloseSend())
	eq(t, "code of RangeStream", status.Code(stream.RecvMsg(&pb.RangeResponse{})), codes.Unimplemented)
}

func grpcDeadline(t *T) {
	first, second := t.grant(60), t.grant(60)
	t.lock(first)
	started := time.Now()
	ctx, cancel := context.WithTimeout(t.ctx, 300*time.Millisecond)
	defer cancel()
	err := t.outcome(t.locking(ctx, 0, second))
	eq(t, "code", status.Code(err), codes.DeadlineExceeded)
	t.check("at once", time.Since(started) < 10*time.Second)
}

// rawBytes is a message whose bytes are given as they are.
type rawBytes struct{ bytes []byte }

type rawCodec struct{}

func (rawCodec) Name() string                       { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error)      { return v.(*rawBytes).bytes, nil }
func (rawCodec) Unmarshal(data []byte, v any) error { v.(*rawBytes).bytes = data; return nil }

func grpcMalformed(t *T) {
	for _, method := range []string{"/etcdserverpb.KV/Range", "/etcdserverpb.KV/Put", "/etcdserverpb.KV/Txn", "/etcdserverpb.Lease/LeaseGrant"} {
		for _, message := range [][]byte{{0xff}, {0x0a, 0x7f, 'a'}, {0x0b}, bytes.Repeat([]byte{0x80}, 32)} {
			err := t.conn(0).Invoke(t.ctx, method, &rawBytes{bytes: message}, &rawBytes{}, grpc.ForceCodec(rawCodec{}))
			code := status.Code(err)
			t.check(fmt.Sprintf("%s of % x: %v", method, message, err), code == codes.Internal || code == codes.InvalidArgument)
		}
	}
	t.put("a", "the connection goes on")
}
