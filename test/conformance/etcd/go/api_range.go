package main

import (
	"bytes"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
)

const (
	textEmptyKey    = "etcdserver: key is not provided"
	textBadSort     = "etcdserver: invalid sort option"
	textCompacted   = "etcdserver: mvcc: required revision has been compacted"
	textFuture      = "etcdserver: mvcc: required revision is a future revision"
	textKeyNotFound = "etcdserver: key not found"
)

var rangeScenarios = []scenario{
	{name: "range/header-names-cluster-member-term-and-the-current-revision", run: rangeHeader},
	{name: "range/empty-key-is-refused", run: rangeEmptyKey},
	{name: "range/key-range-prefix-and-from-key", run: rangeSelects},
	{name: "range/end-not-above-key-is-an-empty-answer", run: rangeInverted},
	{name: "range/keys-are-ordered-by-their-bytes", run: rangeBytewise},
	{name: "range/old-revisions-stay-readable", run: rangeHistory},
	{name: "range/future-revision-is-refused", run: rangeFuture},
	{name: "range/tombstone-revision-reads-as-absent", run: rangeTombstone},
	{name: "range/sorts-by-every-target-both-ways", run: rangeSorts},
	{name: "range/order-none-with-a-target-ascends", run: rangeSortNone},
	{name: "range/invalid-sort-is-refused", run: rangeBadSort},
	{name: "range/sort-then-limit-and-more", run: rangeLimit},
	{name: "range/limit-at-the-count-is-not-more", run: rangeLimitExact},
	{name: "range/revision-filters-do-not-change-count", run: rangeFilters},
	{name: "range/filters-apply-before-limit", run: rangeFilterLimit},
	{name: "range/keys-only-and-count-only", run: rangeOnly},
	{name: "range/pages-at-one-revision-see-one-state", run: rangePages},
	{name: "range/serializable-answers-on-every-member", run: rangeSerializable},
	{name: "range/linearizable-on-another-member-sees-the-write", run: rangeLinearizable},
	{name: "range/unset-fields-of-missing-keys", run: rangeMissing},
	{name: "range/an-answer-far-larger-than-a-request-may-be", run: rangeLarge},
}

func rangeHeader(t *T) {
	first := t.put("a", "1")
	second := t.put("a", "2")
	old := t.get(&pb.RangeRequest{Key: t.key("a"), Revision: first.Header.Revision})
	eqBytes(t, "old value", old.Kvs[0].Value, []byte("1"))
	t.check("header.revision is not the requested one", old.Header.Revision >= second.Header.Revision)
	t.check("cluster_id", old.Header.ClusterId != 0)
	t.check("member_id", old.Header.MemberId != 0)
	t.check("raft_term", old.Header.RaftTerm != 0)
	ids := map[uint64]bool{}
	for member := range t.s.endpoints {
		found, err := t.kvOf(member).Range(t.ctx, &pb.RangeRequest{Key: t.key("a")})
		t.noError("range", err)
		eq(t, "cluster_id of another member", found.Header.ClusterId, old.Header.ClusterId)
		ids[found.Header.MemberId] = true
	}
	eq(t, "different member ids", len(ids), len(t.s.endpoints))
}

func rangeEmptyKey(t *T) {
	_, err := t.kv().Range(t.ctx, &pb.RangeRequest{})
	t.refused(err, codes.InvalidArgument, textEmptyKey)
	_, err = t.kv().Range(t.ctx, &pb.RangeRequest{RangeEnd: []byte("z")})
	t.refused(err, codes.InvalidArgument, textEmptyKey)
}

func (t *T) fill(names ...string) {
	for _, name := range names {
		t.put(name, "v"+name)
	}
}

func rangeSelects(t *T) {
	t.fill("a", "b", "b/1", "b/2", "c")
	cases := []struct {
		what string
		key  []byte
		end  []byte
		want []string
	}{
		{"single key", t.key("b"), nil, []string{"b"}},
		{"absent key", t.key("x"), nil, []string{}},
		{"half-open range", t.key("a"), t.key("b/2"), []string{"a", "b", "b/1"}},
		{"prefix", t.key("b/"), prefixEnd(t.key("b/")), []string{"b/1", "b/2"}},
		{"the whole prefix", t.key(""), t.end(), []string{"a", "b", "b/1", "b/2", "c"}},
	}
	for _, c := range cases {
		found := t.get(&pb.RangeRequest{Key: c.key, RangeEnd: c.end})
		eqSlice(t, c.what, t.names(found.Kvs), c.want)
		eq(t, c.what+": count", found.Count, int64(len(c.want)))
		eq(t, c.what+": more", found.More, false)
	}
	// Others may have keys behind ours, but ours come first.
	from := t.get(&pb.RangeRequest{Key: t.key("b/1"), RangeEnd: []byte{0}, Limit: 3})
	eqSlice(t, "from key", t.names(from.Kvs)[:3], []string{"b/1", "b/2", "c"})
	t.check("from key: count", from.Count >= 3)
	everything := t.get(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, CountOnly: true})
	t.check("all keys: count", everything.Count >= 5)
}

func rangeInverted(t *T) {
	t.fill("a", "b", "c")
	for _, end := range []string{"a", "b"} {
		found := t.get(&pb.RangeRequest{Key: t.key("b"), RangeEnd: t.key(end)})
		eq(t, "count", found.Count, 0)
		eq(t, "kvs", len(found.Kvs), 0)
		eq(t, "more", found.More, false)
	}
}

func rangeBytewise(t *T) {
	names := []string{"\x00", "\x00\x00", "\x01", "A", "a", "a\x00", "a\x00b", "aa", "\x7f", "\x80", "é", "\xff", "\xff\x00", "\xff\xff"}
	for _, name := range slices.Backward(names) {
		t.put(name, name)
	}
	slices.Sort(names)
	found := t.get(t.all())
	eqSlice(t, "ascending", t.names(found.Kvs), names)
	for _, kv := range found.Kvs {
		eqBytes(t, "value", append([]byte(t.prefix), kv.Value...), kv.Key)
	}
	descending := t.all()
	descending.SortOrder = pb.RangeRequest_DESCEND
	slices.Reverse(names)
	eqSlice(t, "descending", t.names(t.get(descending).Kvs), names)
}

func rangeHistory(t *T) {
	first := t.put("a", "1").Header.Revision
	t.put("b", "1")
	third := t.put("a", "2").Header.Revision
	t.del("b")
	request := t.all()
	request.Revision = first
	at := t.get(request)
	eqSlice(t, "keys at the first revision", t.names(at.Kvs), []string{"a"})
	eq(t, "count at the first revision", at.Count, 1)
	request.Revision = third
	at = t.get(request)
	eqSlice(t, "keys at the third revision", t.names(at.Kvs), []string{"a", "b"})
	a := at.Kvs[0]
	eqSlice(t, "create, mod, version", []int64{a.CreateRevision, a.ModRevision, a.Version}, []int64{first, third, 2})
	eqSlice(t, "keys now", t.names(t.get(t.all()).Kvs), []string{"a"})
	request.Revision = -5
	eqSlice(t, "a negative revision is now", t.names(t.get(request).Kvs), []string{"a"})
}

func rangeFuture(t *T) {
	now := t.put("a", "1").Header.Revision
	_, err := t.kv().Range(t.ctx, &pb.RangeRequest{Key: t.key("a"), Revision: now + 1_000_000})
	t.refused(err, codes.OutOfRange, textFuture)
	t.undisturbed("current + 1 is refused", func() bool {
		now := t.put("a", "1").Header.Revision
		_, err := t.kv().Range(t.ctx, &pb.RangeRequest{Key: t.key("a"), Revision: now + 1})
		if err == nil {
			return false
		}
		t.refused(err, codes.OutOfRange, textFuture)
		return true
	})
}

func rangeTombstone(t *T) {
	t.put("a", "1")
	deleted := t.del("a").Header.Revision
	last := t.put("a", "2").Header.Revision
	at := t.get(&pb.RangeRequest{Key: t.key("a"), Revision: deleted})
	eq(t, "count at the tombstone", at.Count, 0)
	eq(t, "kvs at the tombstone", len(at.Kvs), 0)
	a := t.one("a")
	eqSlice(t, "create, mod, version", []int64{a.CreateRevision, a.ModRevision, a.Version}, []int64{last, last, 1})
}

// sortable writes five keys whose orders by the five targets all differ.
func (t *T) sortable() {
	for _, write := range []string{"c=5", "a=2", "e=1", "b=4", "d=3", "a=2", "a=2", "e=1", "c=5", "c=5", "c=5", "b=4"} {
		t.put(write[:1], write[2:])
	}
}

var sortOrders = map[pb.RangeRequest_SortTarget][]string{
	pb.RangeRequest_KEY:     {"a", "b", "c", "d", "e"},
	pb.RangeRequest_CREATE:  {"c", "a", "e", "b", "d"},
	pb.RangeRequest_MOD:     {"d", "a", "e", "c", "b"},
	pb.RangeRequest_VALUE:   {"e", "a", "d", "b", "c"},
	pb.RangeRequest_VERSION: {"d", "b", "e", "a", "c"},
}

func rangeSorts(t *T) {
	t.sortable()
	for target, want := range sortOrders {
		request := t.all()
		request.SortTarget, request.SortOrder = target, pb.RangeRequest_ASCEND
		up := t.names(t.get(request).Kvs)
		request.SortOrder = pb.RangeRequest_DESCEND
		down := t.names(t.get(request).Kvs)
		if target == pb.RangeRequest_VERSION {
			// b and e have the same version: only where they lie is a rule.
			tidy(up[1:3])
			tidy(down[2:4])
			slices.Reverse(down[2:4])
		}
		eqSlice(t, target.String()+" ascending", up, want)
		slices.Reverse(down)
		eqSlice(t, target.String()+" descending, read backwards", down, want)
	}
}

func tidy(part []string) { slices.Sort(part) }

func rangeSortNone(t *T) {
	t.sortable()
	for _, target := range []pb.RangeRequest_SortTarget{pb.RangeRequest_KEY, pb.RangeRequest_CREATE, pb.RangeRequest_MOD, pb.RangeRequest_VALUE} {
		request := t.all()
		request.SortTarget = target
		eqSlice(t, target.String(), t.names(t.get(request).Kvs), sortOrders[target])
	}
}

func rangeBadSort(t *T) {
	t.put("a", "1")
	for _, request := range []*pb.RangeRequest{
		{Key: t.key("a"), SortOrder: 3},
		{Key: t.key("a"), SortOrder: -1},
		{Key: t.key("a"), SortTarget: 5},
		{Key: t.key("a"), SortOrder: pb.RangeRequest_ASCEND, SortTarget: 99},
	} {
		_, err := t.kv().Range(t.ctx, request)
		t.refused(err, codes.InvalidArgument, textBadSort)
		_, err = t.kv().Txn(t.ctx, &pb.TxnRequest{Failure: ops(opRange(request))})
		t.refused(err, codes.InvalidArgument, textBadSort)
	}
}

// ten writes k0..k9 and returns their revisions.
func (t *T) ten() []int64 {
	var revisions []int64
	for i := range 10 {
		revisions = append(revisions, t.put(fmt.Sprintf("k%d", i), "v").Header.Revision)
	}
	return revisions
}

func rangeLimit(t *T) {
	t.ten()
	request := t.all()
	request.Limit, request.SortTarget, request.SortOrder = 3, pb.RangeRequest_MOD, pb.RangeRequest_DESCEND
	found := t.get(request)
	eqSlice(t, "the newest three", t.names(found.Kvs), []string{"k9", "k8", "k7"})
	eq(t, "more", found.More, true)
	eq(t, "count", found.Count, 10)
	plain := t.all()
	plain.Limit = 3
	found = t.get(plain)
	eqSlice(t, "the first three", t.names(found.Kvs), []string{"k0", "k1", "k2"})
	eq(t, "more", found.More, true)
	eq(t, "count", found.Count, 10)
	plain.SortOrder = pb.RangeRequest_DESCEND
	eqSlice(t, "the last three", t.names(t.get(plain).Kvs), []string{"k9", "k8", "k7"})
}

func rangeLimitExact(t *T) {
	t.ten()
	for _, limit := range []int64{0, 10, 11} {
		request := t.all()
		request.Limit = limit
		found := t.get(request)
		eq(t, "kvs", len(found.Kvs), 10)
		eq(t, "more", found.More, false)
		eq(t, "count", found.Count, 10)
	}
}

func rangeFilters(t *T) {
	revisions := t.ten()
	last := t.put("k0", "again").Header.Revision
	cases := []struct {
		what string
		set  func(r *pb.RangeRequest)
		want []string
	}{
		{"max_mod", func(r *pb.RangeRequest) { r.MaxModRevision = revisions[2] }, []string{"k1", "k2"}},
		{"min_mod", func(r *pb.RangeRequest) { r.MinModRevision = revisions[8] }, []string{"k0", "k8", "k9"}},
		{"max_create", func(r *pb.RangeRequest) { r.MaxCreateRevision = revisions[1] }, []string{"k0", "k1"}},
		{"min_create", func(r *pb.RangeRequest) { r.MinCreateRevision = revisions[8] }, []string{"k8", "k9"}},
		{"both ends", func(r *pb.RangeRequest) { r.MinModRevision, r.MaxModRevision = revisions[3], revisions[5] }, []string{"k3", "k4", "k5"}},
		{"create and mod", func(r *pb.RangeRequest) { r.MaxCreateRevision, r.MinModRevision = revisions[4], last }, []string{"k0"}},
		{"nothing left", func(r *pb.RangeRequest) { r.MinModRevision = last + 1 }, []string{}},
	}
	for _, c := range cases {
		request := t.all()
		c.set(request)
		found := t.get(request)
		eqSlice(t, c.what, t.names(found.Kvs), c.want)
		eq(t, c.what+": count ignores the filter", found.Count, 10)
		eq(t, c.what+": more", found.More, false)
	}
}

func rangeFilterLimit(t *T) {
	revisions := t.ten()
	request := t.all()
	request.Limit, request.SortTarget, request.SortOrder = 3, pb.RangeRequest_MOD, pb.RangeRequest_DESCEND
	request.MaxModRevision = revisions[1]
	found := t.get(request)
	eqSlice(t, "two match", t.names(found.Kvs), []string{"k1", "k0"})
	eq(t, "more", found.More, false)
	eq(t, "count", found.Count, 10)
	request.MaxModRevision = revisions[5]
	found = t.get(request)
	eqSlice(t, "six match", t.names(found.Kvs), []string{"k5", "k4", "k3"})
	eq(t, "more", found.More, true)
	// What a waiter of a mutex asks: the newest key that is older than its own.
	waiter := t.all()
	waiter.Limit, waiter.SortTarget, waiter.SortOrder = 1, pb.RangeRequest_CREATE, pb.RangeRequest_DESCEND
	waiter.MaxCreateRevision = revisions[4] - 1
	eqSlice(t, "the one before", t.names(t.get(waiter).Kvs), []string{"k3"})
}

func rangeOnly(t *T) {
	t.ten()
	request := t.all()
	request.KeysOnly = true
	found := t.get(request)
	eq(t, "keys", len(found.Kvs), 10)
	for _, kv := range found.Kvs {
		eq(t, "bytes of value", len(kv.Value), 0)
		t.check("metadata stays", kv.ModRevision > 0 && kv.CreateRevision > 0 && kv.Version == 1)
	}
	request = t.all()
	request.CountOnly, request.Limit = true, 1
	found = t.get(request)
	eq(t, "count", found.Count, 10)
	eq(t, "kvs", len(found.Kvs), 0)
}

func rangePages(t *T) {
	t.ten()
	first := t.all()
	first.Limit = 4
	page := t.get(first)
	revision := page.Header.Revision
	seen := t.names(page.Kvs)
	t.del("k5")
	t.put("k55", "new")
	for page.More {
		next := t.all()
		next.Key = append(slices.Clone(page.Kvs[len(page.Kvs)-1].Key), 0)
		next.Limit, next.Revision = 4, revision
		page = t.get(next)
		seen = append(seen, t.names(page.Kvs)...)
	}
	eqSlice(t, "all pages", seen, []string{"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9"})
}

func rangeSerializable(t *T) {
	written := t.put("a", "1").Header.Revision
	for member := range t.s.endpoints {
		t.until("the member has it", func() bool {
			found, err := t.kvOf(member).Range(t.ctx, &pb.RangeRequest{Key: t.key("a"), Serializable: true})
			t.noError("serializable range", err)
			if found.Header.Revision >= written {
				eq(t, "count", found.Count, 1)
			}
			return found.Count == 1
		})
	}
}

func rangeLinearizable(t *T) {
	for i := range 20 {
		for member := range t.s.endpoints {
			value := fmt.Sprintf("%d/%d", i, member)
			written := t.put("a", value).Header.Revision
			found, err := t.kvOf(member).Range(t.ctx, &pb.RangeRequest{Key: t.key("a")})
			t.noError("range", err)
			eqBytes(t, "value on another member", found.Kvs[0].Value, []byte(value))
			t.check("revision on another member", found.Header.Revision >= written)
		}
	}
}

func rangeMissing(t *T) {
	found := t.get(&pb.RangeRequest{Key: t.key("absent")})
	eq(t, "count", found.Count, 0)
	eq(t, "kvs", len(found.Kvs), 0)
	eq(t, "more", found.More, false)
	t.check("header", found.Header.Revision >= 1)
	t.put("empty", "")
	kv := t.one("empty")
	t.check("an empty value is a value", kv != nil && len(kv.Value) == 0)
	eq(t, "lease", kv.Lease, 0)
}

// rangeLarge: kube-apiserver lists hundreds of megabytes in one answer.
func rangeLarge(t *T) {
	value := bytes.Repeat([]byte("large"), 180_000)
	for i := range 16 {
		t.putOf(&pb.PutRequest{Key: t.key(fmt.Sprintf("%02d", i)), Value: value})
	}
	found := t.get(t.all())
	eq(t, "kvs", len(found.Kvs), 16)
	for _, kv := range found.Kvs {
		eqBytes(t, "value", kv.Value, value)
	}
}
