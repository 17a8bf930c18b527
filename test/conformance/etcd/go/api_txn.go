package main

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
)

const (
	textDuplicate = "etcdserver: duplicate key given in txn request"
	textTooMany   = "etcdserver: too many operations in txn request"
)

var txnScenarios = []scenario{
	{name: "txn/without-compares-it-succeeds", run: txnNoCompare},
	{name: "txn/all-writes-share-one-revision", run: txnOneRevision},
	{name: "txn/a-read-only-txn-uses-no-revision", run: txnReadOnly},
	{name: "txn/a-delete-of-nothing-uses-no-revision", run: txnDeleteNothing},
	{name: "txn/failed-compares-take-the-else-branch", run: txnElse},
	{name: "txn/compares-every-target-and-result", run: txnCompares},
	{name: "txn/compares-of-a-missing-key", run: txnCompareMissing},
	{name: "txn/compares-a-whole-range", run: txnCompareRange},
	{name: "txn/later-operations-see-earlier-ones", run: txnSeesItself},
	{name: "txn/answers-come-in-operation-order", run: txnAnswers},
	{name: "txn/duplicate-writes-are-refused", run: txnDuplicates},
	{name: "txn/overlaps-that-are-allowed", run: txnOverlaps},
	{name: "txn/nested-branches-are-decided-by-the-state-before", run: txnNested},
	{name: "txn/too-many-operations", run: txnBudget},
	{name: "txn/nested-txns-share-the-budget", run: txnNestedBudget},
	{name: "txn/a-bad-operation-in-either-branch-is-refused", run: txnBadOperation},
	{name: "txn/an-unknown-lease-fails-all-of-it", run: txnUnknownLease},
	// In etcd 3.6.16 only the member that was asked refuses such a txn: the others leave ranges out when they apply it,
	// write, and differ from then on (their hashes do). So it must not be tried there.
	{name: "txn/a-future-range-fails-all-of-it", run: txnFutureRange, lockstepOnly: true},
	{name: "txn/ignore-value-on-a-missing-key-fails-all-of-it", run: txnIgnoreValue},
	{name: "txn/the-branch-not-taken-is-not-judged-by-state", run: txnOtherBranch},
	{name: "txn/prev-kv-inside", run: txnPrevKv},
	{name: "txn/ranges-inside-honour-their-options", run: txnRangeOptions},
}

func compare(key []byte, result pb.Compare_CompareResult, target pb.Compare_CompareTarget) *pb.Compare {
	return &pb.Compare{Key: key, Result: result, Target: target}
}

func cmpMod(key []byte, result pb.Compare_CompareResult, revision int64) *pb.Compare {
	c := compare(key, result, pb.Compare_MOD)
	c.TargetUnion = &pb.Compare_ModRevision{ModRevision: revision}
	return c
}

func cmpCreate(key []byte, result pb.Compare_CompareResult, revision int64) *pb.Compare {
	c := compare(key, result, pb.Compare_CREATE)
	c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: revision}
	return c
}

func cmpVersion(key []byte, result pb.Compare_CompareResult, version int64) *pb.Compare {
	c := compare(key, result, pb.Compare_VERSION)
	c.TargetUnion = &pb.Compare_Version{Version: version}
	return c
}

func cmpValue(key []byte, result pb.Compare_CompareResult, value string) *pb.Compare {
	c := compare(key, result, pb.Compare_VALUE)
	c.TargetUnion = &pb.Compare_Value{Value: []byte(value)}
	return c
}

func cmpLease(key []byte, result pb.Compare_CompareResult, lease int64) *pb.Compare {
	c := compare(key, result, pb.Compare_LEASE)
	c.TargetUnion = &pb.Compare_Lease{Lease: lease}
	return c
}

const (
	equal    = pb.Compare_EQUAL
	greater  = pb.Compare_GREATER
	less     = pb.Compare_LESS
	notEqual = pb.Compare_NOT_EQUAL
)

// holds tells whether the compares are true now.
func (t *T) holds(compares ...*pb.Compare) bool {
	return t.txn(&pb.TxnRequest{Compare: compares}).Succeeded
}

func txnNoCompare(t *T) {
	answer := t.txn(&pb.TxnRequest{Success: ops(opPut(t.key("a"), []byte("1"))), Failure: ops(opPut(t.key("b"), []byte("1")))})
	eq(t, "succeeded", answer.Succeeded, true)
	eqSlice(t, "keys", t.names(t.get(t.all()).Kvs), []string{"a"})
	eq(t, "an empty txn succeeds", t.txn(&pb.TxnRequest{}).Succeeded, true)
}

func txnOneRevision(t *T) {
	t.undisturbed("two writes use one revision", func() bool {
		before := t.put("x", "1").Header.Revision
		answer := t.txn(&pb.TxnRequest{Success: ops(opPut(t.key("a"), []byte("1")), opPut(t.key("b"), []byte("2")), opDelete(t.key("x"), nil))})
		revision := answer.Header.Revision
		eq(t, "mod_revision of a", t.one("a").ModRevision, revision)
		eq(t, "mod_revision of b", t.one("b").ModRevision, revision)
		eq(t, "revision of the put's own header", answer.Responses[0].GetResponsePut().Header.Revision, revision)
		eq(t, "deleted", answer.Responses[2].GetResponseDeleteRange().Deleted, 1)
		return revision == before+1
	})
}

func txnReadOnly(t *T) {
	t.undisturbed("reading uses no revision", func() bool {
		before := t.put("a", "1").Header.Revision
		answer := t.txn(&pb.TxnRequest{Success: ops(opRange(t.all()))})
		eq(t, "count", answer.Responses[0].GetResponseRange().Count, 1)
		return answer.Header.Revision == before
	})
	ranges := t.all()
	ranges.Serializable = true
	for member := range t.s.endpoints {
		answer, err := t.kvOf(member).Txn(t.ctx, &pb.TxnRequest{Success: ops(opRange(ranges))})
		t.noError("serializable txn", err)
		eq(t, "succeeded", answer.Succeeded, true)
	}
}

func txnDeleteNothing(t *T) {
	t.undisturbed("a delete of nothing uses no revision", func() bool {
		before := t.put("a", "1").Header.Revision
		answer := t.txn(&pb.TxnRequest{Success: ops(opDelete(t.key("absent"), nil), opDelete(t.key("b"), t.key("c")))})
		eq(t, "deleted", answer.Responses[0].GetResponseDeleteRange().Deleted, 0)
		return answer.Header.Revision == before
	})
}

func txnElse(t *T) {
	t.put("a", "1")
	answer := t.txn(&pb.TxnRequest{
		Compare: []*pb.Compare{cmpValue(t.key("a"), equal, "1"), cmpValue(t.key("a"), equal, "2")},
		Success: ops(opPut(t.key("a"), []byte("success"))),
		Failure: ops(opPut(t.key("b"), []byte("failure")), opRange(&pb.RangeRequest{Key: t.key("a")})),
	})
	eq(t, "succeeded", answer.Succeeded, false)
	eq(t, "answers", len(answer.Responses), 2)
	eqBytes(t, "a", answer.Responses[1].GetResponseRange().Kvs[0].Value, []byte("1"))
	eqBytes(t, "b", t.one("b").Value, []byte("failure"))
}

func txnCompares(t *T) {
	lease := t.grant(60)
	created := t.put("a", "m").Header.Revision
	mod := t.putOf(&pb.PutRequest{Key: t.key("a"), Value: []byte("m"), Lease: lease}).Header.Revision
	key := t.key("a")
	makers := []struct {
		what           string
		below, is, top *pb.Compare
	}{
		{"mod", cmpMod(key, 0, mod-1), cmpMod(key, 0, mod), cmpMod(key, 0, mod+1)},
		{"create", cmpCreate(key, 0, created-1), cmpCreate(key, 0, created), cmpCreate(key, 0, created+1)},
		{"version", cmpVersion(key, 0, 1), cmpVersion(key, 0, 2), cmpVersion(key, 0, 3)},
		{"value", cmpValue(key, 0, "l"), cmpValue(key, 0, "m"), cmpValue(key, 0, "ma")},
		{"lease", cmpLease(key, 0, lease-1), cmpLease(key, 0, lease), cmpLease(key, 0, lease+1)},
	}
	want := map[pb.Compare_CompareResult][3]bool{
		equal: {false, true, false}, greater: {true, false, false}, less: {false, false, true}, notEqual: {true, false, true},
	}
	for _, m := range makers {
		for result, expected := range want {
			for i, c := range []*pb.Compare{m.below, m.is, m.top} {
				c.Result = result
				eq(t, fmt.Sprintf("%s %v the value %+d", m.what, result, i-1), t.holds(c), expected[i])
			}
		}
	}
}

func txnCompareMissing(t *T) {
	key := t.key("absent")
	cases := []struct {
		what string
		c    *pb.Compare
		want bool
	}{
		{"version = 0", cmpVersion(key, equal, 0), true},
		{"version > 0", cmpVersion(key, greater, 0), false},
		{"create = 0", cmpCreate(key, equal, 0), true},
		{"create != 0", cmpCreate(key, notEqual, 0), false},
		{"mod = 0", cmpMod(key, equal, 0), true},
		{"mod < 5", cmpMod(key, less, 5), true},
		{"lease = 0", cmpLease(key, equal, 0), true},
		{"value = ''", cmpValue(key, equal, ""), false},
		{"value != x", cmpValue(key, notEqual, "x"), false},
		{"value < x", cmpValue(key, less, "x"), false},
	}
	for _, c := range cases {
		eq(t, c.what, t.holds(c.c), c.want)
	}
	_, err := t.kv().Txn(t.ctx, &pb.TxnRequest{Compare: []*pb.Compare{cmpVersion(nil, equal, 0)}})
	t.refused(err, codes.InvalidArgument, textEmptyKey)
	_, err = t.kv().Txn(t.ctx, &pb.TxnRequest{Success: ops(opTxn(&pb.TxnRequest{Compare: []*pb.Compare{cmpVersion(nil, equal, 0)}}))})
	t.refused(err, codes.InvalidArgument, textEmptyKey)
}

func txnCompareRange(t *T) {
	over := func(c *pb.Compare) *pb.Compare {
		c.RangeEnd = t.end()
		return c
	}
	all := t.key("")
	eq(t, "an empty range compares zeros: mod < 5", t.holds(over(cmpMod(all, less, 5))), true)
	eq(t, "an empty range compares zeros: version = 0", t.holds(over(cmpVersion(all, equal, 0))), true)
	eq(t, "an empty range has no value", t.holds(over(cmpValue(all, notEqual, "x"))), false)
	t.fill("a", "b", "c")
	eq(t, "all are at version 1", t.holds(over(cmpVersion(all, equal, 1))), true)
	last := t.put("b", "again").Header.Revision
	eq(t, "not all are at version 1", t.holds(over(cmpVersion(all, equal, 1))), false)
	eq(t, "all are older than the next revision", t.holds(over(cmpMod(all, less, last+1))), true)
	eq(t, "not all are older than the last", t.holds(over(cmpMod(all, less, last))), false)
	eq(t, "no value is x", t.holds(over(cmpValue(all, notEqual, "x"))), true)
	from := cmpVersion(t.key("c"), greater, 0)
	from.RangeEnd = []byte{0}
	eq(t, "from a key on", t.holds(from), true)
}

func txnSeesItself(t *T) {
	t.put("a", "old")
	answer := t.txn(&pb.TxnRequest{Success: ops(
		opRange(&pb.RangeRequest{Key: t.key("a")}),
		opPut(t.key("a"), []byte("new")),
		opRange(&pb.RangeRequest{Key: t.key("a")}),
		opPut(t.key("b"), []byte("1")),
		opRange(t.all()),
		opDelete(t.key("c"), t.key("d")),
		opPut(t.key("d"), []byte("1")),
		opRange(&pb.RangeRequest{Key: t.key(""), RangeEnd: t.end(), CountOnly: true}),
	)})
	at := func(i int) *pb.RangeResponse { return answer.Responses[i].GetResponseRange() }
	eqBytes(t, "before the put", at(0).Kvs[0].Value, []byte("old"))
	eqBytes(t, "after the put", at(2).Kvs[0].Value, []byte("new"))
	eq(t, "its mod_revision", at(2).Kvs[0].ModRevision, answer.Header.Revision)
	eq(t, "its version", at(2).Kvs[0].Version, 2)
	eqSlice(t, "two keys", t.names(at(4).Kvs), []string{"a", "b"})
	eq(t, "at the end", at(7).Count, 3)
}

func txnAnswers(t *T) {
	t.put("a", "1")
	answer := t.txn(&pb.TxnRequest{Success: ops(
		opPut(t.key("b"), []byte("1")),
		opRange(&pb.RangeRequest{Key: t.key("a")}),
		opDelete(t.key("a"), nil),
		opTxn(&pb.TxnRequest{Compare: []*pb.Compare{cmpVersion(t.key("zz"), greater, 0)}, Failure: ops(opPut(t.key("c"), []byte("1")))}),
	)})
	eq(t, "answers", len(answer.Responses), 4)
	t.check("1: put", answer.Responses[0].GetResponsePut() != nil)
	t.check("2: range", answer.Responses[1].GetResponseRange() != nil)
	t.check("3: delete", answer.Responses[2].GetResponseDeleteRange() != nil)
	nested := answer.Responses[3].GetResponseTxn()
	t.check("4: txn", nested != nil)
	eq(t, "the nested one took its else branch", nested.Succeeded, false)
	t.check("the nested put", nested.Responses[0].GetResponsePut() != nil)
	eq(t, "one revision for all", t.one("c").ModRevision, answer.Header.Revision)
}

func (t *T) txnRefused(what string, text string, success ...*pb.RequestOp) {
	before := t.get(t.all()).Count
	for _, request := range []*pb.TxnRequest{{Success: success}, {Failure: success}} {
		_, err := t.kv().Txn(t.ctx, request)
		if err == nil {
			t.fail("%s was accepted", what)
		}
		t.refused(err, codes.InvalidArgument, text)
	}
	eq(t, what+" wrote", t.get(t.all()).Count-before, 0)
}

func txnDuplicates(t *T) {
	a, b, c := t.key("a"), t.key("b"), t.key("c")
	put := func(key []byte) *pb.RequestOp { return opPut(key, []byte("x")) }
	then := func(list ...*pb.RequestOp) *pb.RequestOp { return opTxn(&pb.TxnRequest{Success: list}) }
	otherwise := func(list ...*pb.RequestOp) *pb.RequestOp { return opTxn(&pb.TxnRequest{Failure: list}) }
	t.txnRefused("put twice", textDuplicate, put(a), put(a))
	t.txnRefused("put and delete", textDuplicate, put(a), opDelete(a, nil))
	t.txnRefused("delete, then put", textDuplicate, opDelete(a, nil), put(a))
	t.txnRefused("put inside a deleted range", textDuplicate, put(b), opDelete(a, c))
	t.txnRefused("put and the same put in a nested then", textDuplicate, put(a), then(put(a)))
	t.txnRefused("put and the same put in a nested else", textDuplicate, put(a), otherwise(put(a)))
	t.txnRefused("nested put under an outer delete", textDuplicate, then(put(b)), opDelete(a, c))
	t.txnRefused("two nested txns that put the same", textDuplicate, then(put(a)), then(put(a)))
	t.txnRefused("nested then and another's else", textDuplicate, then(put(a)), otherwise(put(a)))
	t.txnRefused("outer put under a nested delete", textDuplicate, then(opDelete(a, c)), put(b))
	t.txnRefused("twice inside a nested one", textDuplicate, then(put(a), put(a)))
	t.txnRefused("two levels down", textDuplicate, put(a), then(then(put(a))))
}

func txnOverlaps(t *T) {
	a, b, c := t.key("a"), t.key("b"), t.key("c")
	put := func(key []byte) *pb.RequestOp { return opPut(key, []byte("x")) }
	t.fill("a", "b", "c")
	answer := t.txn(&pb.TxnRequest{Success: ops(opDelete(a, nil), opDelete(a, c), opDelete(b, nil))})
	var deleted []int64
	for _, one := range answer.Responses {
		deleted = append(deleted, one.GetResponseDeleteRange().Deleted)
	}
	eqSlice(t, "overlapping deletes find what is left", deleted, []int64{1, 1, 0})
	t.txn(&pb.TxnRequest{Success: ops(opTxn(&pb.TxnRequest{Success: ops(put(a)), Failure: ops(put(a))}))})
	eq(t, "a nested put in both branches happens once", t.one("a").Version, 1)
	t.txn(&pb.TxnRequest{Success: ops(put(a)), Failure: ops(put(a))})
	eq(t, "a put in both branches happens once", t.one("a").Version, 2)
	t.txn(&pb.TxnRequest{Success: ops(opDelete(a, b), put(b))})
	t.check("a range ends before its end", t.one("a") == nil && t.one("b") != nil)
	// A put that comes before a nested delete of the same key is let through, and the delete wins.
	both := ops(opTxn(&pb.TxnRequest{Success: ops(put(a))}), opTxn(&pb.TxnRequest{Success: ops(opDelete(a, nil))}))
	if t.s.lockstep {
		// Refused in either order: which one wins would hang on it.
		t.txnRefused("put and deleted beside each other", textDuplicate, both...)
		return
	}
	t.txn(&pb.TxnRequest{Success: both})
	t.check("put, then deleted", t.one("a") == nil)
}

func txnNested(t *T) {
	a, b := t.key("a"), t.key("b")
	t.put("a", "1")
	// The outer put comes first, and still the inner compare sees the state before the txn.
	answer := t.txn(&pb.TxnRequest{Success: ops(
		opPut(b, []byte("new")),
		opTxn(&pb.TxnRequest{
			Compare: []*pb.Compare{cmpVersion(b, equal, 0), cmpValue(a, equal, "1")},
			Success: ops(opPut(a, []byte("2")), opRange(&pb.RangeRequest{Key: b})),
			Failure: ops(opRange(&pb.RangeRequest{Key: a})),
		}),
	)})
	nested := answer.Responses[1].GetResponseTxn()
	eq(t, "inner succeeded", nested.Succeeded, true)
	eqBytes(t, "inner range sees the outer put", nested.Responses[1].GetResponseRange().Kvs[0].Value, []byte("new"))
	eqBytes(t, "a", t.one("a").Value, []byte("2"))
	eq(t, "one revision", t.one("a").ModRevision, t.one("b").ModRevision)
	deep := opPut(t.key("deep"), []byte("x"))
	for range 5 {
		deep = opTxn(&pb.TxnRequest{Success: ops(deep)})
	}
	t.txn(&pb.TxnRequest{Success: ops(deep)})
	t.check("five levels down", t.one("deep") != nil)
}

func (t *T) manyPuts(n int, name string) []*pb.RequestOp {
	var list []*pb.RequestOp
	for i := range n {
		list = append(list, opPut(t.key(fmt.Sprintf("%s%d", name, i)), []byte("x")))
	}
	return list
}

func txnBudget(t *T) {
	t.txnRefused("129 operations", textTooMany, t.manyPuts(129, "k")...)
	var compares []*pb.Compare
	for i := range 129 {
		compares = append(compares, cmpVersion(t.key(fmt.Sprint(i)), equal, 0))
	}
	_, err := t.kv().Txn(t.ctx, &pb.TxnRequest{Compare: compares})
	t.refused(err, codes.InvalidArgument, textTooMany)
	answer := t.txn(&pb.TxnRequest{Compare: compares[:128], Success: t.manyPuts(128, "k"), Failure: t.manyPuts(128, "l")})
	eq(t, "128 of each are allowed", answer.Succeeded, true)
	eq(t, "written", t.get(t.all()).Count, 128)
}

func txnNestedBudget(t *T) {
	nested := func(outer, inner int) *pb.TxnRequest {
		return &pb.TxnRequest{Success: append(t.manyPuts(outer-1, "outer"), opTxn(&pb.TxnRequest{Success: t.manyPuts(inner, "inner")}))}
	}
	_, err := t.kv().Txn(t.ctx, nested(100, 29))
	t.refused(err, codes.InvalidArgument, textTooMany)
	_, err = t.kv().Txn(t.ctx, nested(128, 1))
	t.refused(err, codes.InvalidArgument, textTooMany)
	t.txn(nested(100, 28))
	eq(t, "written", t.get(t.all()).Count, 99+28)
}

func txnBadOperation(t *T) {
	cases := []struct {
		what, text string
		op         *pb.RequestOp
	}{
		{"put without a key", textEmptyKey, opPut(nil, []byte("x"))},
		{"range without a key", textEmptyKey, opRange(&pb.RangeRequest{})},
		{"delete without a key", textEmptyKey, opDelete(nil, []byte{0})},
		{"put with value and ignore_value", textValueProvided, opPutOf(&pb.PutRequest{Key: t.key("a"), Value: []byte("x"), IgnoreValue: true})},
		{"put with lease and ignore_lease", textLeaseProvided, opPutOf(&pb.PutRequest{Key: t.key("a"), Lease: 5, IgnoreLease: true})},
		{"no operation at all", textKeyNotFound, &pb.RequestOp{}},
	}
	for _, c := range cases {
		t.txnRefused(c.what, c.text, opPut(t.key("good"), []byte("x")), c.op)
		t.txnRefused(c.what+", nested", c.text, opPut(t.key("good"), []byte("x")), opTxn(&pb.TxnRequest{Failure: ops(c.op)}))
	}
}

func (t *T) failsWhole(code codes.Code, text string, op *pb.RequestOp) {
	_, err := t.kv().Txn(t.ctx, &pb.TxnRequest{Success: ops(opPut(t.key("a"), []byte("x")), op, opPut(t.key("b"), []byte("x")))})
	t.refused(err, code, text)
	_, err = t.kv().Txn(t.ctx, &pb.TxnRequest{Success: ops(opPut(t.key("a"), []byte("x")), opTxn(&pb.TxnRequest{Success: ops(op)}))})
	t.refused(err, code, text)
	for member := range t.s.endpoints {
		found, err := t.kvOf(member).Range(t.ctx, t.all())
		t.noError("range", err)
		eq(t, "written on a member", found.Count, 0)
	}
}

func txnUnknownLease(t *T) {
	t.failsWhole(codes.NotFound, textLeaseNotFound, opPutOf(&pb.PutRequest{Key: t.key("c"), Lease: 77_777_777}))
	t.undisturbed("it uses no revision", func() bool {
		before := t.put("x", "1").Header.Revision
		_, err := t.kv().Txn(t.ctx, &pb.TxnRequest{Success: ops(opPutOf(&pb.PutRequest{Key: t.key("c"), Lease: 77_777_777}))})
		t.refused(err, codes.NotFound, textLeaseNotFound)
		return t.get(t.all()).Header.Revision == before
	})
}

func txnFutureRange(t *T) {
	now := t.get(t.all()).Header.Revision
	t.failsWhole(codes.OutOfRange, textFuture, opRange(&pb.RangeRequest{Key: t.key("a"), Revision: now + 1_000_000}))
}

func txnIgnoreValue(t *T) {
	t.failsWhole(codes.InvalidArgument, textKeyNotFound, opPutOf(&pb.PutRequest{Key: t.key("c"), IgnoreValue: true}))
	t.failsWhole(codes.InvalidArgument, textKeyNotFound, opPutOf(&pb.PutRequest{Key: t.key("c"), IgnoreLease: true}))
}

func txnOtherBranch(t *T) {
	now := t.get(t.all()).Header.Revision
	answer := t.txn(&pb.TxnRequest{
		Success: ops(opPut(t.key("a"), []byte("x"))),
		Failure: ops(
			opPutOf(&pb.PutRequest{Key: t.key("b"), Lease: 77_777_777}),
			opPutOf(&pb.PutRequest{Key: t.key("c"), IgnoreValue: true}),
			opRange(&pb.RangeRequest{Key: t.key("a"), Revision: now + 1_000_000}),
		),
	})
	eq(t, "succeeded", answer.Succeeded, true)
	eqSlice(t, "written", t.names(t.get(t.all()).Kvs), []string{"a"})
}

func txnPrevKv(t *T) {
	t.fill("a", "b", "c")
	answer := t.txn(&pb.TxnRequest{Success: ops(
		opPutOf(&pb.PutRequest{Key: t.key("a"), Value: []byte("2"), PrevKv: true}),
		&pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{
			Key: t.key("b"), RangeEnd: t.key("d"), PrevKv: true}}},
	)})
	eqBytes(t, "of the put", answer.Responses[0].GetResponsePut().PrevKv.Value, []byte("va"))
	eqSlice(t, "of the delete", t.names(answer.Responses[1].GetResponseDeleteRange().PrevKvs), []string{"b", "c"})
}

func txnRangeOptions(t *T) {
	revisions := t.ten()
	old := t.all()
	old.Revision = revisions[4]
	limited := t.all()
	limited.Limit, limited.SortOrder, limited.KeysOnly = 2, pb.RangeRequest_DESCEND, true
	answer := t.txn(&pb.TxnRequest{Success: ops(opDelete(t.key("k9"), nil), opRange(old), opRange(limited))})
	eq(t, "at an old revision", answer.Responses[1].GetResponseRange().Count, 5)
	last := answer.Responses[2].GetResponseRange()
	eqSlice(t, "limited, descending, after the delete", t.names(last.Kvs), []string{"k8", "k7"})
	eq(t, "more", last.More, true)
	eq(t, "keys only", len(last.Kvs[0].Value), 0)
}
