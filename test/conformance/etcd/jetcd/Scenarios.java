import static java.nio.charset.StandardCharsets.UTF_8;

import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.Election;
import io.etcd.jetcd.KV;
import io.etcd.jetcd.KeyValue;
import io.etcd.jetcd.Watch;
import io.etcd.jetcd.common.exception.CompactedException;
import io.etcd.jetcd.election.LeaderKey;
import io.etcd.jetcd.election.LeaderResponse;
import io.etcd.jetcd.kv.GetResponse;
import io.etcd.jetcd.kv.TxnResponse;
import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.etcd.jetcd.lease.LeaseTimeToLiveResponse;
import io.etcd.jetcd.op.Cmp;
import io.etcd.jetcd.op.CmpTarget;
import io.etcd.jetcd.op.Op;
import io.etcd.jetcd.options.DeleteOption;
import io.etcd.jetcd.options.GetOption;
import io.etcd.jetcd.options.LeaseOption;
import io.etcd.jetcd.options.PutOption;
import io.etcd.jetcd.options.WatchOption;
import io.etcd.jetcd.support.CloseableClient;
import io.etcd.jetcd.support.Observers;
import io.etcd.jetcd.watch.WatchEvent;
import io.grpc.Status;
import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Pattern;

/** Everyday use of jetcd; one JSON line for each scenario, as etcd-conformance prints them. */
public final class Scenarios {
  private interface Scenario {
    void run(Scenarios t) throws Exception;
  }

  private static final Map<String, Scenario> ALL = new LinkedHashMap<>();
  private static final long SECONDS_MAX = 20;

  static {
    ALL.put("jetcd/put-get-delete", Scenarios::putGetDelete);
    ALL.put("jetcd/prefixes-sorts-limits-and-revisions", Scenarios::ranges);
    ALL.put("jetcd/transactions", Scenarios::transactions);
    ALL.put("jetcd/leases", Scenarios::leases);
    ALL.put("jetcd/watches", Scenarios::watches);
    ALL.put("jetcd/many-watches-of-one-client", Scenarios::manyWatches);
    ALL.put("jetcd/a-compacted-watch-tells-the-point", Scenarios::compacted);
    ALL.put("jetcd/locks", Scenarios::locks);
    ALL.put("jetcd/elections", Scenarios::elections);
    ALL.put("jetcd/errors-have-codes", Scenarios::errors);
    ALL.put("jetcd/members-status-and-snapshot", Scenarios::maintenance);
  }

  private final List<String> endpoints;
  private final String prefix = "/jetcd/" + UUID.randomUUID() + "/";
  private final Client client;
  private final KV kv;

  private Scenarios(List<String> endpoints) {
    this.endpoints = endpoints;
    client = Client.builder().endpoints(endpoints.toArray(new String[0])).build();
    kv = client.getKVClient();
  }

  public static void main(String[] args) {
    String run = "";
    List<String> endpoints = List.of("http://127.0.0.1:2379");
    boolean list = false;
    for (int i = 0; i < args.length; i++) {
      switch (args[i]) {
        case "-list" -> list = true;
        case "-run" -> run = args[++i];
        case "-endpoints" -> endpoints = Arrays.stream(args[++i].split(",")).map(one -> "http://" + one).toList();
        default -> throw new IllegalArgumentException(args[i]);
      }
    }
    boolean ok = true;
    for (Map.Entry<String, Scenario> one : ALL.entrySet()) {
      if (!Pattern.compile(run).matcher(one.getKey()).find()) continue;
      if (list) System.out.println(one.getKey());
      else ok &= runOne(one.getKey(), one.getValue(), endpoints);
    }
    // The client's event loops would keep the process.
    System.exit(ok ? 0 : 1);
  }

  private static boolean runOne(String name, Scenario scenario, List<String> endpoints) {
    String error = null;
    Scenarios t = new Scenarios(endpoints);
    try {
      scenario.run(t);
    } catch (Throwable thrown) {
      error = thrown.toString();
    } finally {
      t.client.close();
    }
    String rest = error == null ? "" : ",\"error\":\"" + error.replaceAll("[\"\\\\\\p{Cntrl}]", "'") + "\"";
    System.out.println("{\"name\":\"" + name + "\",\"ok\":" + (error == null) + rest + "}");
    return error == null;
  }

  private static ByteSequence bytes(String text) {
    return ByteSequence.from(text, UTF_8);
  }

  private ByteSequence key(String name) {
    return bytes(prefix + name);
  }

  private static void equal(String what, Object got, Object want) {
    if (!want.equals(got)) throw new AssertionError(what + ": got " + got + ", want " + want);
  }

  private static void check(String what, boolean ok) {
    if (!ok) throw new AssertionError(what);
  }

  private static <V> V of(CompletableFuture<V> future) throws Exception {
    return future.get(SECONDS_MAX, TimeUnit.SECONDS);
  }

  /** The status that a call ends with; the client hands it out as it is, or inside an exception of its own. */
  private static Status refused(CompletableFuture<?> future) throws Exception {
    try {
      of(future);
    } catch (ExecutionException error) {
      return Status.fromThrowable(error);
    }
    throw new AssertionError("was accepted");
  }

  private static <V> V next(LinkedBlockingQueue<V> queue) throws Exception {
    V found = queue.poll(SECONDS_MAX, TimeUnit.SECONDS);
    check("in time", found != null);
    return found;
  }

  private List<String> names(GetResponse found) {
    return found.getKvs().stream().map(one -> one.getKey().toString(UTF_8).substring(prefix.length())).toList();
  }

  private void putGetDelete() throws Exception {
    long first = of(kv.put(key("a"), bytes("1"))).getHeader().getRevision();
    KeyValue previous = of(kv.put(key("a"), bytes("2"), PutOption.builder().withPrevKV().build())).getPrevKv();
    equal("previous", previous.getValue(), bytes("1"));
    KeyValue now = of(kv.get(key("a"))).getKvs().get(0);
    equal("value", now.getValue(), bytes("2"));
    equal("create revision", now.getCreateRevision(), first);
    equal("version", now.getVersion(), 2L);
    equal("deleted", of(kv.delete(key("a"))).getDeleted(), 1L);
    equal("absent", of(kv.get(key("a"))).getCount(), 0L);
  }

  private GetOption.Builder all() {
    return GetOption.builder().isPrefix(true);
  }

  private void ranges() throws Exception {
    for (String name : List.of("c", "a", "b")) of(kv.put(key(name), bytes("v" + name)));
    long revision = of(kv.get(key(""), all().build())).getHeader().getRevision();
    equal("prefix", names(of(kv.get(key(""), all().build()))), List.of("a", "b", "c"));
    GetOption created = all().withSortField(GetOption.SortTarget.CREATE).withSortOrder(GetOption.SortOrder.ASCEND).build();
    equal("by creation", names(of(kv.get(key(""), created))), List.of("c", "a", "b"));
    GetResponse limited = of(kv.get(key(""), all().withLimit(2).build()));
    equal("limited", names(limited), List.of("a", "b"));
    equal("more", limited.isMore(), true);
    equal("count", of(kv.get(key(""), all().withCountOnly(true).build())).getCount(), 3L);
    equal("deleted", of(kv.delete(key(""), DeleteOption.builder().isPrefix(true).build())).getDeleted(), 3L);
    equal("before", of(kv.get(key(""), all().withRevision(revision).build())).getCount(), 3L);
  }

  private void transactions() throws Exception {
    of(kv.put(key("a"), bytes("1")));
    Cmp isOne = new Cmp(key("a"), Cmp.Op.EQUAL, CmpTarget.value(bytes("1")));
    Cmp absent = new Cmp(key("b"), Cmp.Op.EQUAL, CmpTarget.version(0));
    TxnResponse won = of(kv.txn().If(isOne, absent)
        .Then(Op.put(key("a"), bytes("2"), PutOption.DEFAULT), Op.get(key("a"), GetOption.DEFAULT))
        .Else(Op.delete(key("a"), DeleteOption.DEFAULT)).commit());
    equal("succeeded", won.isSucceeded(), true);
    equal("read", won.getGetResponses().get(0).getKvs().get(0).getValue(), bytes("2"));
    TxnResponse lost = of(kv.txn().If(isOne).Then(Op.put(key("b"), bytes("x"), PutOption.DEFAULT))
        .Else(Op.delete(key("a"), DeleteOption.DEFAULT)).commit());
    equal("succeeded", lost.isSucceeded(), false);
    equal("deleted", lost.getDeleteResponses().get(0).getDeleted(), 1L);
  }

  private void leases() throws Exception {
    long lease = of(client.getLeaseClient().grant(60)).getID();
    of(kv.put(key("a"), bytes("1"), PutOption.builder().withLeaseId(lease).build()));
    LeaseTimeToLiveResponse left =
        of(client.getLeaseClient().timeToLive(lease, LeaseOption.builder().withAttachedKeys().build()));
    equal("granted", left.getGrantedTTL(), 60L);
    equal("keys", left.getKeys(), List.of(key("a")));
    equal("renewed", of(client.getLeaseClient().keepAliveOnce(lease)).getTTL(), 60L);
    LinkedBlockingQueue<Long> renewals = new LinkedBlockingQueue<>();
    long shortest = of(client.getLeaseClient().grant(3)).getID();
    try (CloseableClient keeper = client.getLeaseClient().keepAlive(shortest,
        Observers.<LeaseKeepAliveResponse>observer(answer -> renewals.add(answer.getTTL())))) {
      for (int i = 0; i < 4; i++) check("renewed", next(renewals) > 0);
    }
    of(client.getLeaseClient().revoke(lease));
    equal("its key", of(kv.get(key("a"))).getCount(), 0L);
    equal("unknown", refused(client.getLeaseClient().revoke(lease)).getCode(), Status.Code.NOT_FOUND);
  }

  private void watches() throws Exception {
    LinkedBlockingQueue<WatchEvent> events = new LinkedBlockingQueue<>();
    long from = of(kv.put(key("x"), bytes("before"))).getHeader().getRevision() + 1;
    try (Watch.Watcher watcher = client.getWatchClient().watch(key(""), WatchOption.builder().isPrefix(true)
        .withPrevKV(true).withRevision(from).build(), Watch.listener(answer -> events.addAll(answer.getEvents())))) {
      of(kv.put(key("a"), bytes("1")));
      of(kv.put(key("a"), bytes("2")));
      of(kv.delete(key("a")));
      equal("first", next(events).getKeyValue().getValue(), bytes("1"));
      WatchEvent second = next(events);
      equal("second", second.getKeyValue().getValue(), bytes("2"));
      equal("before", second.getPrevKV().getValue(), bytes("1"));
      equal("third", next(events).getEventType(), WatchEvent.EventType.DELETE);
    }
  }

  private void manyWatches() throws Exception {
    List<Watch.Watcher> watchers = new ArrayList<>();
    LinkedBlockingQueue<String> seen = new LinkedBlockingQueue<>();
    long from = of(kv.get(key("0"))).getHeader().getRevision() + 1;
    for (int i = 0; i < 20; i++)
      watchers.add(client.getWatchClient().watch(key(i + "/"), WatchOption.builder().isPrefix(true).withRevision(from).build(),
          Watch.listener(answer -> answer.getEvents().forEach(event -> seen.add(event.getKeyValue().getValue().toString(UTF_8))))));
    List<String> want = new ArrayList<>();
    for (int i = 0; i < 20; i++) {
      of(kv.put(key(i + "/x"), bytes("" + i)));
      want.add("" + i);
    }
    List<String> got = new ArrayList<>();
    while (got.size() < 20) got.add(next(seen));
    got.sort(null);
    want.sort(null);
    equal("each once", got, want);
    watchers.forEach(Watch.Watcher::close);
  }

  private void compacted() throws Exception {
    long from = of(kv.put(key("a"), bytes("1"))).getHeader().getRevision();
    long point = of(kv.put(key("a"), bytes("2"))).getHeader().getRevision();
    of(kv.compact(point));
    CompletableFuture<Throwable> failed = new CompletableFuture<>();
    client.getWatchClient().watch(key("a"), WatchOption.builder().withRevision(from).build(),
        Watch.listener(answer -> { }, failed::complete));
    Throwable error = of(failed);
    check("compacted: " + error, error instanceof CompactedException);
    equal("point", ((CompactedException) error).getCompactedRevision(), point);
    equal("get", refused(kv.get(key("a"), GetOption.builder().withRevision(from).build())).getCode(),
        Status.Code.OUT_OF_RANGE);
  }

  private void locks() throws Exception {
    long first = of(client.getLeaseClient().grant(30)).getID();
    long second = of(client.getLeaseClient().grant(30)).getID();
    ByteSequence held = of(client.getLockClient().lock(key("lock"), first)).getKey();
    CompletableFuture<ByteSequence> waiting =
        client.getLockClient().lock(key("lock"), second).thenApply(answer -> answer.getKey());
    try {
      waiting.get(300, TimeUnit.MILLISECONDS);
      throw new AssertionError("two hold the lock");
    } catch (TimeoutException expected) {
      of(client.getLockClient().unlock(held));
    }
    of(client.getLockClient().unlock(of(waiting)));
    equal("left", of(kv.get(key("lock"), all().build())).getCount(), 0L);
  }

  private void elections() throws Exception {
    long lease = of(client.getLeaseClient().grant(30)).getID();
    LinkedBlockingQueue<String> leaders = new LinkedBlockingQueue<>();
    client.getElectionClient().observe(key("e"), new Election.Listener() {
      @Override
      public void onNext(LeaderResponse answer) {
        leaders.add(answer.getKv().getValue().toString(UTF_8));
      }

      @Override
      public void onError(Throwable error) {}

      @Override
      public void onCompleted() {}
    });
    LeaderKey leader = of(client.getElectionClient().campaign(key("e"), lease, bytes("one"))).getLeader();
    equal("observed", next(leaders), "one");
    of(client.getElectionClient().proclaim(leader, bytes("two")));
    equal("observed", next(leaders), "two");
    equal("leader", of(client.getElectionClient().leader(key("e"))).getKv().getValue(), bytes("two"));
    of(client.getElectionClient().resign(leader));
  }

  private void errors() throws Exception {
    equal("lease", refused(kv.put(key("a"), bytes("x"), PutOption.builder().withLeaseId(987654321L).build())).getCode(),
        Status.Code.NOT_FOUND);
    equal("future", refused(kv.get(key("a"), GetOption.builder().withRevision(1L << 40).build())).getCode(),
        Status.Code.OUT_OF_RANGE);
    Status twice = refused(kv.txn().Then(Op.put(key("a"), bytes("1"), PutOption.DEFAULT),
        Op.put(key("a"), bytes("2"), PutOption.DEFAULT)).commit());
    equal("duplicate", twice.getCode(), Status.Code.INVALID_ARGUMENT);
    check(twice.toString(), twice.getDescription().contains("duplicate key given in txn request"));
  }

  private void maintenance() throws Exception {
    equal("members", of(client.getClusterClient().listMember()).getMembers().size(), endpoints.size());
    String version = of(client.getMaintenanceClient().statusMember(endpoints.get(0))).getVersion();
    check("version " + version, version.startsWith("3.6."));
    ByteArrayOutputStream file = new ByteArrayOutputStream();
    of(client.getMaintenanceClient().snapshot(file));
    equal("length of a snapshot with its sum", file.size() % 512, 32);
  }
}
