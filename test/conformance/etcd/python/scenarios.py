"""Everyday use of the python client `etcd3`; one JSON line for each scenario, as etcd-conformance prints them."""

import argparse
import io
import json
import re
import secrets
import sys
import threading
import time

import etcd3
import grpc

SCENARIOS = {}


def scenario(name):
    def register(function):
        SCENARIOS[name] = function
        return function

    return register


def equal(what, got, want):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")


def check(what, condition):
    if not condition:
        raise AssertionError(what)


class Context:
    """A client of each member, and a prefix of the scenario's own."""

    def __init__(self, endpoints):
        self.endpoints = endpoints
        self.prefix = f"/python/{secrets.token_hex(8)}/"
        self.clients = []
        self.client = self.connect(0)

    def connect(self, member):
        host, port = self.endpoints[member % len(self.endpoints)].rsplit(":", 1)
        client = etcd3.client(host=host, port=int(port), timeout=15)
        self.clients.append(client)
        return client

    def key(self, name):
        return self.prefix + name

    def names(self, found):
        return [metadata.key.decode()[len(self.prefix):] for _, metadata in found]

    def close(self):
        for client in self.clients:
            client.close()


@scenario("python/put-get-delete")
def put_get_delete(t):
    first = t.client.put(t.key("a"), "1")
    value, metadata = t.client.get(t.key("a"))
    equal("value", value, b"1")
    equal("create_revision", metadata.create_revision, first.header.revision)
    equal("version", metadata.version, 1)
    equal("previous", t.client.put(t.key("a"), "2", prev_kv=True).prev_kv.value, b"1")
    equal("deleted", t.client.delete(t.key("a")), True)
    equal("deleted again", t.client.delete(t.key("a")), False)
    equal("absent", t.client.get(t.key("a")), (None, None))


@scenario("python/prefixes-ranges-and-sorts")
def ranges(t):
    for name, value in [("c", "1"), ("a", "3"), ("b", "2")]:
        t.client.put(t.key(name), value)
    equal("prefix", t.names(t.client.get_prefix(t.prefix)), ["a", "b", "c"])
    equal("descending", t.names(t.client.get_prefix(t.prefix, sort_order="descend")), ["c", "b", "a"])
    by_value = t.client.get_prefix(t.prefix, sort_order="ascend", sort_target="value")
    equal("by value", t.names(by_value), ["c", "b", "a"])
    by_create = t.client.get_prefix(t.prefix, sort_order="ascend", sort_target="create")
    equal("by creation", t.names(by_create), ["c", "a", "b"])
    equal("range", t.names(t.client.get_range(t.key("a"), t.key("c"))), ["a", "b"])
    only = list(t.client.get_prefix(t.prefix, keys_only=True))
    equal("keys only", [value for value, _ in only], [b"", b"", b""])
    equal("deleted", t.client.delete_prefix(t.prefix).deleted, 3)


@scenario("python/put-if-not-exists-and-replace")
def conditional(t):
    equal("first", t.client.put_if_not_exists(t.key("a"), "1"), True)
    equal("second", t.client.put_if_not_exists(t.key("a"), "2"), False)
    equal("replaced", t.client.replace(t.key("a"), "1", "3"), True)
    equal("not replaced", t.client.replace(t.key("a"), "1", "4"), False)
    equal("value", t.client.get(t.key("a"))[0], b"3")


@scenario("python/transactions")
def transactions(t):
    txn = t.client.transactions
    t.client.put(t.key("a"), "1")
    done, answers = t.client.transaction(
        compare=[txn.value(t.key("a")) == "1", txn.version(t.key("a")) > 0, txn.create(t.key("absent")) == "0"],
        success=[txn.put(t.key("b"), "2"), txn.get(t.key("a"))],
        failure=[txn.delete(t.key("a"))],
    )
    equal("succeeded", done, True)
    equal("read", answers[1][0][0], b"1")
    done, answers = t.client.transaction(
        compare=[txn.value(t.key("a")) == "2"], success=[], failure=[txn.get(t.key("b")), txn.delete(t.key("a"))]
    )
    equal("succeeded", done, False)
    equal("read", answers[0][0][0], b"2")
    equal("deleted", t.client.get(t.key("a"))[0], None)
    try:
        t.client.transaction(compare=[], success=[txn.put(t.key("x"), "1"), txn.put(t.key("x"), "2")], failure=[])
        raise AssertionError("a duplicate put was taken")
    except grpc.RpcError as error:
        equal("code", error.code(), grpc.StatusCode.INVALID_ARGUMENT)
        equal("text", error.details(), "etcdserver: duplicate key given in txn request")


@scenario("python/leases")
def leases(t):
    lease = t.client.lease(60)
    t.client.put(t.key("a"), "1", lease=lease)
    equal("granted", lease.granted_ttl, 60)
    check("remaining", 50 < lease.remaining_ttl <= 60)
    equal("keys", list(lease.keys), [t.key("a").encode()])
    equal("renewed", lease.refresh()[0].TTL, 60)
    chosen = t.client.lease(60, lease_id=secrets.randbits(62))
    try:
        t.client.lease(60, lease_id=chosen.id)
        raise AssertionError("a lease id was given twice")
    except etcd3.exceptions.PreconditionFailedError:
        pass
    chosen.revoke()
    lease.revoke()
    equal("its key", t.client.get(t.key("a"))[0], None)


@scenario("python/a-lease-expires")
def expiry(t):
    lease = t.client.lease(2)
    t.client.put(t.key("a"), "1", lease=lease)
    event = t.client.watch_once(t.key("a"), timeout=30)
    check("deleted", isinstance(event, etcd3.events.DeleteEvent))


def take(events, count):
    """The next events, with a limit: the iterator itself waits for ever."""
    found = []
    done = threading.Event()

    def read():
        for event in events:
            found.append(event)
            if len(found) == count:
                break
        done.set()

    threading.Thread(target=read, daemon=True).start()
    check(f"{count} events in time; got {len(found)}", done.wait(20))
    return found


@scenario("python/watches")
def watches(t):
    events, cancel = t.client.watch_prefix(t.prefix, prev_kv=True)
    t.client.put(t.key("a"), "1")
    t.client.put(t.key("a"), "2")
    t.client.delete(t.key("a"))
    found = take(events, 3)
    equal("values", [event.value for event in found], [b"1", b"2", b""])
    equal("before", found[1].prev_value, b"1")
    check("types", isinstance(found[0], etcd3.events.PutEvent) and isinstance(found[2], etcd3.events.DeleteEvent))
    cancel()
    first = found[0].mod_revision
    again, cancel = t.client.watch(t.key("a"), start_revision=first)
    equal("from history", [event.mod_revision for event in take(again, 3)], [event.mod_revision for event in found])
    cancel()


@scenario("python/many-watches-of-one-client")
def many_watches(t):
    open_watches = [t.client.watch(t.key(str(n))) for n in range(10)]
    for n in range(10):
        t.client.put(t.key(str(n)), str(n))
    for n, (events, cancel) in enumerate(open_watches):
        equal("value", take(events, 1)[0].value, str(n).encode())
        cancel()


@scenario("python/watch-callbacks")
def callbacks(t):
    seen, done = [], threading.Event()

    def callback(response):
        seen.extend(event.value for event in response.events)
        if len(seen) == 2:
            done.set()

    watch_id = t.client.add_watch_callback(t.key("a"), callback)
    t.client.put(t.key("a"), "1")
    t.client.put(t.key("a"), "2")
    check("both seen", done.wait(20))
    equal("values", seen, [b"1", b"2"])
    t.client.cancel_watch(watch_id)


@scenario("python/a-compacted-watch-tells-the-point")
def compacted(t):
    first = t.client.put(t.key("a"), "1").header.revision
    point = t.client.put(t.key("a"), "2").header.revision
    t.client.compact(point)
    try:
        events, _ = t.client.watch(t.key("a"), start_revision=first)
        next(events)
        raise AssertionError("history that is compacted was watched")
    except etcd3.exceptions.RevisionCompactedError as error:
        equal("point", error.compacted_revision, point)


@scenario("python/locks")
def locks(t):
    first = t.client.lock(t.key("lock"), ttl=30)
    second = t.connect(1).lock(t.key("lock"), ttl=30)
    equal("acquired", first.acquire(timeout=10), True)
    equal("held", first.is_acquired(), True)
    equal("second", second.acquire(timeout=1), False)
    equal("released", first.release(), True)
    equal("second", second.acquire(timeout=10), True)
    equal("released", second.release(), True)
    inside = []

    def contend(member):
        client = t.connect(member)
        for _ in range(4):
            with client.lock(t.key("shared"), ttl=30):
                inside.append(1)
                if len(inside) != 1:
                    inside.append("two inside")
                time.sleep(0.005)
                inside.remove(1)

    threads = [threading.Thread(target=contend, args=(n,), daemon=True) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
        check("the contender came to its end", not thread.is_alive())
    equal("left", inside, [])


@scenario("python/members-status-and-maintenance")
def maintenance(t):
    members = list(t.client.members)
    equal("members", len(members), len(t.endpoints))
    for member in members:
        check("name and URLs", member.name and member.client_urls and member.peer_urls)
    status = t.client.status()
    check("version", re.fullmatch(r"3\.6\.\d+", status.version))
    check("figures", status.db_size > 0 and status.raft_term > 0 and status.raft_index > 0)
    check("leader", status.leader.name in [member.name for member in members])
    equal("alarms", list(t.client.list_alarms()), [])
    t.client.defragment()
    check("hash", t.client.hash() > 0)
    file = io.BytesIO()
    t.client.snapshot(file)
    equal("length of a snapshot with its sum", len(file.getvalue()) % 512, 32)


@scenario("python/errors-by-code")
def errors(t):
    try:
        t.client.put(t.key("a"), "1", lease=987654321)
        raise AssertionError("an unknown lease was taken")
    except grpc.RpcError as error:
        equal("code", error.code(), grpc.StatusCode.NOT_FOUND)
        equal("text", error.details(), "etcdserver: requested lease not found")
    try:
        t.client.compact(1 << 40)
        raise AssertionError("a future revision was compacted")
    except grpc.RpcError as error:
        equal("code", error.code(), grpc.StatusCode.OUT_OF_RANGE)


def run(name, endpoints):
    started = time.monotonic()
    result = {"name": name, "ok": True}
    context = None
    try:
        context = Context(endpoints)
        SCENARIOS[name](context)
    except Exception as error:  # A scenario fails with whatever the client raises.
        result.update(ok=False, error=f"{type(error).__name__}: {error}")
    finally:
        if context is not None:
            context.close()
    result["ms"] = round((time.monotonic() - started) * 1000)
    print(json.dumps(result), flush=True)
    return result["ok"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-endpoints", default="127.0.0.1:2379")
    parser.add_argument("-run", default="")
    parser.add_argument("-list", action="store_true")
    options = parser.parse_args()
    names = [name for name in SCENARIOS if re.search(options.run, name)]
    if options.list:
        print("\n".join(names))
        return 0
    endpoints = options.endpoints.split(",")
    outcomes = [run(name, endpoints) for name in names]
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
