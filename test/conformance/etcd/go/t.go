package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// responseBytesMax is far above what a scenario reads at once.
const responseBytesMax = 512 << 20

type failure string
type skipped string

// T is what a scenario works with. Its methods end the scenario when something is not as it must be; they belong to
// the scenario's own goroutine (others report through [T.together]).
type T struct {
	ctx     context.Context
	s       *settings
	prefix  string
	mu      sync.Mutex
	conns   map[int]*grpc.ClientConn
	cleanup []func()
	shared  *clientv3.Client
	// detail is printed with the verdict.
	detail string
}

func newT(ctx context.Context, s *settings) *T {
	random := make([]byte, 8)
	_, _ = rand.Read(random)
	return &T{ctx: ctx, s: s, prefix: "/conformance/" + hex.EncodeToString(random) + "/", conns: map[int]*grpc.ClientConn{}}
}

func (t *T) cleanUp() {
	for _, f := range slices.Backward(t.cleanup) {
		f()
	}
	for _, conn := range t.conns {
		_ = conn.Close()
	}
}

func (t *T) atEnd(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanup = append(t.cleanup, f)
}

// fail ends the scenario. The message names the line of the scenario that asked.
func (t *T) fail(format string, args ...any) {
	panic(failure(fmt.Sprintf(format, args...) + " (" + callers() + ")"))
}

func callers() string {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	var lines []string
	for {
		frame, more := frames.Next()
		base := filepath.Base(frame.File)
		if strings.HasPrefix(frame.Function, "main.") && base != "t.go" && base != "main.go" {
			lines = append(lines, fmt.Sprintf("%s:%d", base, frame.Line))
		}
		if !more {
			return strings.Join(lines, " < ")
		}
	}
}

func (t *T) skip(reason string) { panic(skipped(reason)) }

func (t *T) noError(what string, err error) {
	if err != nil {
		t.fail("%s: %v", what, err)
	}
}

func (t *T) check(what string, ok bool) {
	if !ok {
		t.fail("%s", what)
	}
}

func eq[V comparable](t *T, what string, got, want V) {
	if got != want {
		t.fail("%s: got %v, want %v", what, got, want)
	}
}

func eqSlice[V comparable](t *T, what string, got, want []V) {
	if !slices.Equal(got, want) {
		t.fail("%s: got %v, want %v", what, got, want)
	}
}

func eqBytes(t *T, what string, got, want []byte) {
	if !bytes.Equal(got, want) {
		t.fail("%s: got %.80q, want %.80q", what, got, want)
	}
}

// refused checks the code and the exact text: clients restore their typed errors from it.
func (t *T) refused(err error, code codes.Code, text string) {
	if err == nil {
		t.fail("was accepted; want %v %q", code, text)
	}
	found := status.Convert(err)
	if found.Code() != code || found.Message() != text {
		t.fail("got %v %q, want %v %q", found.Code(), found.Message(), code, text)
	}
}

// together runs n goroutines and fails with the first error of one of them.
func (t *T) together(n int, f func(i int) error) {
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Add(1)
		go func() {
			defer group.Done()
			errs[i] = f(i)
		}()
	}
	group.Wait()
	t.noError("in a goroutine", errors.Join(errs...))
}

// undisturbed repeats a measurement that a write of somebody else would spoil; one clean attempt proves the law, and
// a server that breaks it never has one.
func (t *T) undisturbed(what string, attempt func() bool) {
	for range 200 {
		if attempt() {
			return
		}
	}
	t.fail("%s: not once in 200 attempts", what)
}

// conn is a connection to one member; the same one each time.
func (t *T) conn(member int) *grpc.ClientConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if conn := t.conns[member]; conn != nil {
		return conn
	}
	conn := t.dial(t.s.endpoints[member%len(t.s.endpoints)])
	t.conns[member] = conn
	return conn
}

func (t *T) dial(endpoint string) *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:///"+endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// A member that was just started again is dialled again at once.
		// Without a time of its own, a connection would have to be made within the first back-off.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: 300 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(responseBytesMax)))
	t.noError("dial", err)
	return conn
}

// client is etcd's own Go client, of all members.
func (t *T) client() *clientv3.Client { return t.clientOf(t.s.endpoints) }

func (t *T) clientOf(endpoints []string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   endpoints,
		DialTimeout: 10 * time.Second,
		// A killed member's connections are noticed at once on loopback; this is for a member that hangs.
		DialKeepAliveTime:    2 * time.Second,
		DialKeepAliveTimeout: 2 * time.Second,
		Logger:               zap.NewNop(),
	})
	t.noError("client", err)
	t.atEnd(func() { _ = client.Close() })
	return client
}

func (t *T) kv() pb.KVClient                   { return pb.NewKVClient(t.conn(0)) }
func (t *T) kvOf(member int) pb.KVClient       { return pb.NewKVClient(t.conn(member)) }
func (t *T) lease() pb.LeaseClient             { return pb.NewLeaseClient(t.conn(0)) }
func (t *T) cluster() pb.ClusterClient         { return pb.NewClusterClient(t.conn(0)) }
func (t *T) maintenance() pb.MaintenanceClient { return pb.NewMaintenanceClient(t.conn(0)) }
func (t *T) maintenanceOf(member int) pb.MaintenanceClient {
	return pb.NewMaintenanceClient(t.conn(member))
}

// key is a key of the scenario's own; end is the range end of all of them.
func (t *T) key(name string) []byte { return []byte(t.prefix + name) }
func (t *T) end() []byte            { return prefixEnd([]byte(t.prefix)) }
func (t *T) all() *pb.RangeRequest  { return &pb.RangeRequest{Key: []byte(t.prefix), RangeEnd: t.end()} }

func prefixEnd(prefix []byte) []byte { return []byte(clientv3.GetPrefixRangeEnd(string(prefix))) }

func (t *T) put(name, value string) *pb.PutResponse {
	return t.putOf(&pb.PutRequest{Key: t.key(name), Value: []byte(value)})
}

func (t *T) putOf(request *pb.PutRequest) *pb.PutResponse {
	response, err := t.kv().Put(t.ctx, request)
	t.noError("put", err)
	return response
}

func (t *T) get(request *pb.RangeRequest) *pb.RangeResponse {
	response, err := t.kv().Range(t.ctx, request)
	t.noError("range", err)
	return response
}

// one is the key's present state, nil when it is absent.
func (t *T) one(name string) *mvccpb.KeyValue {
	response := t.get(&pb.RangeRequest{Key: t.key(name)})
	if len(response.Kvs) == 0 {
		return nil
	}
	return response.Kvs[0]
}

func (t *T) del(name string) *pb.DeleteRangeResponse {
	response, err := t.kv().DeleteRange(t.ctx, &pb.DeleteRangeRequest{Key: t.key(name)})
	t.noError("delete", err)
	return response
}

func (t *T) txn(request *pb.TxnRequest) *pb.TxnResponse {
	response, err := t.kv().Txn(t.ctx, request)
	t.noError("txn", err)
	return response
}

func (t *T) grant(seconds int64) int64 {
	response, err := t.lease().LeaseGrant(t.ctx, &pb.LeaseGrantRequest{TTL: seconds})
	t.noError("grant", err)
	t.atEnd(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, _ = t.lease().LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: response.ID})
	})
	return response.ID
}

// names strips the scenario's prefix off the keys.
func (t *T) names(kvs []*mvccpb.KeyValue) []string {
	names := []string{}
	for _, kv := range kvs {
		names = append(names, strings.TrimPrefix(string(kv.Key), t.prefix))
	}
	return names
}

func opPut(key, value []byte) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key, Value: value}}}
}

func opPutOf(request *pb.PutRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: request}}
}

func opDelete(key, end []byte) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: key, RangeEnd: end}}}
}

func opRange(request *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: request}}
}

func opTxn(request *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: request}}
}

func ops(list ...*pb.RequestOp) []*pb.RequestOp { return list }

// control asks the harness to do something with a member: kill (at once), stop (in order), start (again), pause,
// resume. It returns when it is done.
func (t *T) control(what string, member int) {
	url := fmt.Sprintf("%s/%s?member=%d", t.s.control, what, member)
	request, err := http.NewRequestWithContext(t.ctx, http.MethodPost, url, nil)
	t.noError("control", err)
	response, err := http.DefaultClient.Do(request)
	t.noError("control", err)
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		t.fail("control %s: %s %s", what, response.Status, text)
	}
}

// leader is the number of the member that leads, asked until there is one.
func (t *T) leader() int {
	for t.ctx.Err() == nil {
		for member := range t.s.endpoints {
			if id, leader := t.leads(member); leader != 0 && id == leader {
				return member
			}
		}
		pause(t.ctx, 50*time.Millisecond)
	}
	t.fail("no member leads")
	return 0
}

func (t *T) leads(member int) (id, leader uint64) {
	ctx, cancel := context.WithTimeout(t.ctx, time.Second)
	defer cancel()
	found, err := t.maintenanceOf(member).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return 0, 0
	}
	return found.Header.MemberId, found.Leader
}

// until polls for a state that nothing announces.
func (t *T) until(what string, look func() bool) {
	for t.ctx.Err() == nil {
		if look() {
			return
		}
		pause(t.ctx, 50*time.Millisecond)
	}
	t.fail("not in time: %s", what)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// clientOnce is one client for all of a scenario's calls.
func (t *T) clientOnce() *clientv3.Client {
	if t.shared == nil {
		t.shared = t.client()
	}
	return t.shared
}
