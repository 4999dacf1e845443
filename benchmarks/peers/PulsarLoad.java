import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Runs the loads of benchmarks/peers/load.py on Pulsar: one JSON object a line in, one a line out, behind "OUTCOME ".
 * It stays one process, so that a load finds the client as warm as the load before left it.
 */
public final class PulsarLoad {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int MOST_PENDING = 20_000;

    private final String admin;
    private final PulsarClient client;
    private final Set<String> topics = new HashSet<>();
    private final Map<String, Producer<byte[]>> producers = new HashMap<>();

    private PulsarLoad(String service, String admin) throws Exception {
        this.admin = admin;
        this.client = PulsarClient.builder().serviceUrl(service).enableTransaction(true).build();
    }

    public static void main(String[] arguments) throws Exception {
        PulsarLoad load = new PulsarLoad(arguments[0], arguments[1]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode outcome;
            try {
                outcome = load.run(JSON.readTree(line));
            } catch (Exception error) {
                error.printStackTrace();
                outcome = JSON.createObjectNode().put("error", error.toString());
            }
            System.out.println("OUTCOME " + JSON.writeValueAsString(outcome));
            System.out.flush();
        }
        load.client.close();
        System.exit(0);
    }

    private ObjectNode run(JsonNode load) throws Exception {
        makeTopic(load.get("topic").asText(), load.get("partitions").asInt());
        switch (load.get("kind").asText()) {
            case "commit":
            case "fill":
                return commit(load);
            case "read":
                return read(load);
            case "pipeline":
                return pipeline(load);
            default:
                return watched(load);
        }
    }

    private void makeTopic(String name, int partitions) throws Exception {
        if (!topics.add(name)) {
            return;
        }
        HttpRequest request = HttpRequest.newBuilder(
                URI.create(admin + "/admin/v2/persistent/public/default/" + name + "/partitions"))
            .header("Content-Type", "application/json")
            .PUT(HttpRequest.BodyPublishers.ofString(Integer.toString(partitions)))
            .build();
        HttpResponse<String> answer =
            HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() >= 300) {
            throw new IllegalStateException("The topic " + name + " was not made: " + answer.body());
        }
    }

    /** A producer of one partition. Small transactions go out at once; many messages go out in batches. */
    private synchronized Producer<byte[]> producer(String topic, int partition, boolean batches) throws Exception {
        String key = topic + "-partition-" + partition + "/" + batches;
        Producer<byte[]> known = producers.get(key);
        if (known != null) {
            return known;
        }
        ProducerBuilder<byte[]> builder = client.newProducer(Schema.BYTES)
            .topic("persistent://public/default/" + topic + "-partition-" + partition)
            .sendTimeout(0, TimeUnit.SECONDS)
            .maxPendingMessages(MOST_PENDING)
            .blockIfQueueFull(true)
            .enableBatching(batches);
        if (batches) {
            builder.batchingMaxMessages(5_000).batchingMaxBytes(1 << 20).batchingMaxPublishDelay(2, TimeUnit.MILLISECONDS);
        }
        Producer<byte[]> made = builder.create();
        producers.put(key, made);
        return made;
    }

    private Transaction begin() throws Exception {
        return client.newTransaction().withTransactionTimeout(10, TimeUnit.MINUTES).build().get();
    }

    private ObjectNode commit(JsonNode load) throws Exception {
        String topic = load.get("topic").asText();
        int partitions = load.get("partitions").asInt();
        int messages = load.get("messages").asInt();
        int limit = load.get("transactions").asInt() == 0 ? Integer.MAX_VALUE : load.get("transactions").asInt();
        double aborted = load.get("aborted").asDouble();
        byte[][] values = values(Math.min(65_536, partitions * messages), load.get("size").asInt());
        List<Producer<byte[]>> targets = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++) {
            targets.add(producer(topic, partition, messages > 1));
        }
        AtomicInteger numbers = new AtomicInteger();
        AtomicReference<Exception> failure = new AtomicReference<>();
        List<Double> latencies = Collections.synchronizedList(new ArrayList<>());
        long started = System.nanoTime();
        long deadline = started + (long) (load.get("seconds").asDouble() * 1e9);
        List<Thread> threads = new ArrayList<>();
        for (int each = 0; each < load.get("producers").asInt(); each++) {
            Thread thread = new Thread(() -> {
                try {
                    while (System.nanoTime() < deadline && failure.get() == null) {
                        int number = numbers.getAndIncrement();
                        if (number >= limit) {
                            return;
                        }
                        long began = System.nanoTime();
                        Transaction transaction = begin();
                        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
                        int next = 0;
                        for (Producer<byte[]> target : targets) {
                            for (int message = 0; message < messages; message++) {
                                sent.add(target.newMessage(transaction).value(values[next++ % values.length]).sendAsync());
                            }
                        }
                        CompletableFuture.allOf(sent.toArray(new CompletableFuture<?>[0])).get();
                        if (Math.floor((number + 1) * aborted) > Math.floor(number * aborted)) {
                            transaction.abort().get();
                        } else {
                            transaction.commit().get();
                        }
                        latencies.add((System.nanoTime() - began) / 1e6);
                    }
                } catch (Exception error) {
                    failure.compareAndSet(null, error);
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        double seconds = (System.nanoTime() - started) / 1e9;
        int done = latencies.size();
        return outcome(seconds, done, (long) done * partitions * messages, latencies);
    }

    private Consumer<byte[]> consumer(String topic, SubscriptionType type) throws Exception {
        return client.newConsumer(Schema.BYTES)
            .topic("persistent://public/default/" + topic)
            .subscriptionName(UUID.randomUUID().toString())
            .subscriptionType(type)
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
            .receiverQueueSize(MOST_PENDING)
            .maxTotalReceiverQueueSizeAcrossPartitions(10 * MOST_PENDING)
            .subscribe();
    }

    private ObjectNode read(JsonNode load) throws Exception {
        long wanted = load.get("rows").asLong();
        long started = System.nanoTime();
        long deadline = started + (long) (load.get("seconds").asDouble() * 1e9);
        long rows = 0;
        try (Consumer<byte[]> consumer = consumer(load.get("topic").asText(), SubscriptionType.Exclusive)) {
            while (rows < wanted && System.nanoTime() < deadline) {
                Message<byte[]> message = consumer.receive(1, TimeUnit.SECONDS);
                if (message != null) {
                    rows++;
                    if (message.size() != load.get("size").asInt()) {
                        throw new IllegalStateException("A message of another size was read.");
                    }
                }
            }
            double seconds = (System.nanoTime() - started) / 1e9;
            return outcome(seconds, 0, rows, List.of());
        }
    }

    private ObjectNode pipeline(JsonNode load) throws Exception {
        String topic = load.get("topic").asText();
        String target = topic + "-" + UUID.randomUUID().toString().substring(0, 8);
        boolean transactional = load.get("transactional").asBoolean();
        long cycle = load.get("cycle_ms").asLong() * 1_000_000;
        long wanted = load.get("rows").asLong();
        makeTopic(target, 1);
        Producer<byte[]> producer = producer(target, 0, true);
        List<Double> latencies = new ArrayList<>();
        long rows = 0;
        try (Consumer<byte[]> consumer = consumer(topic + "-partition-0", SubscriptionType.Exclusive)) {
            Message<byte[]> first = consumer.receive(30, TimeUnit.SECONDS);
            long started = System.nanoTime();
            long deadline = started + (long) (load.get("seconds").asDouble() * 1e9);
            while (rows < wanted && System.nanoTime() < deadline) {
                long began = System.nanoTime();
                Transaction transaction = transactional ? begin() : null;
                Semaphore done = new Semaphore(0);
                AtomicReference<Throwable> failure = new AtomicReference<>();
                int sent = 0;
                MessageId last = null;
                while (true) {
                    Message<byte[]> message = first != null ? first : consumer.receive(10, TimeUnit.MILLISECONDS);
                    first = null;
                    if (message != null) {
                        TypedMessageBuilder<byte[]> made =
                            transactional ? producer.newMessage(transaction) : producer.newMessage();
                        made.value(message.getValue()).sendAsync().whenComplete((id, error) -> {
                            if (error != null) {
                                failure.set(error);
                            }
                            done.release();
                        });
                        sent++;
                        rows++;
                        last = message.getMessageId();
                    }
                    if (rows >= wanted || System.nanoTime() >= began + cycle) {
                        break;
                    }
                }
                producer.flush();
                done.acquire(sent);
                if (failure.get() != null) {
                    throw new IllegalStateException(failure.get());
                }
                if (last != null && transactional) {
                    consumer.acknowledgeCumulativeAsync(last, transaction).get();
                } else if (last != null) {
                    consumer.acknowledgeCumulative(last);
                }
                if (transactional) {
                    transaction.commit().get();
                }
                latencies.add((System.nanoTime() - began) / 1e6);
            }
            double seconds = (System.nanoTime() - started) / 1e9;
            return outcome(seconds, latencies.size(), rows, latencies);
        }
    }

    /** The loads `deliver` and `open`, as benchmarks/peers/watching.py has them for clients in Python. */
    private ObjectNode watched(JsonNode load) throws Exception {
        String topic = load.get("topic").asText();
        boolean opens = load.get("kind").asText().equals("open");
        double length = load.get("seconds").asDouble();
        long cycle = load.get("cycle_ms").asLong() * 1_000_000;
        int size = load.get("size").asInt();
        Producer<byte[]> producer = producer(topic, 0, false);
        List<Double> latencies = Collections.synchronizedList(new ArrayList<>());
        AtomicInteger read = new AtomicInteger();
        Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive);
        Thread reader = new Thread(() -> {
            try {
                while (!Thread.currentThread().isInterrupted()) {
                    Message<byte[]> message = consumer.receive(20, TimeUnit.MILLISECONDS);
                    if (message != null) {
                        long sent = ByteBuffer.wrap(message.getValue()).getLong();
                        if (sent != 0) {
                            read.incrementAndGet();
                            latencies.add((System.nanoTime() - sent) / 1e6);
                        }
                    }
                }
            } catch (Exception error) {
                Thread.currentThread().interrupt();
            }
        });
        reader.start();
        for (int each = 0; each < 20; each++) {
            commitOne(producer, size);
        }
        settle(read, 20, () -> { });
        read.set(0);
        latencies.clear();
        ArrayNode progress = JSON.createArrayNode();
        Transaction left = opens ? begin() : null;
        if (opens) {
            producer.newMessage(left).value(new byte[size]).send();
        }
        int committed = 0;
        long started = System.nanoTime();
        long due = started;
        long sampled = 0;
        for (long now = started; now < started + length * 1e9; now = System.nanoTime()) {
            if (left != null && now > started + length * 1e9 * 2 / 3) {
                left.commit().get();
                left = null;
            }
            if (now < due) {
                Thread.sleep(Math.min(100, (due - now) / 1_000_000 + 1));
            } else {
                commitOne(producer, size);
                committed++;
                due = Math.max(due + cycle, now);
            }
            if (now >= sampled + 100_000_000L) {
                sampled = now;
                sample(progress, started, committed, read.get());
            }
        }
        int all = committed;
        settle(read, committed, () -> sample(progress, started, all, read.get()));
        reader.interrupt();
        reader.join();
        consumer.close();
        ObjectNode found = outcome(length, committed, read.get(), latencies);
        found.set("progress", opens ? progress : JSON.createArrayNode());
        return found;
    }

    private static void sample(ArrayNode progress, long started, int committed, int read) {
        progress.addArray().add((System.nanoTime() - started) / 1e9).add(committed).add(read);
    }

    private static void settle(AtomicInteger read, int count, Runnable each) throws Exception {
        long deadline = System.nanoTime() + 2_000_000_000L;
        while (read.get() < count && System.nanoTime() < deadline) {
            Thread.sleep(100);
            each.run();
        }
    }

    private void commitOne(Producer<byte[]> producer, int size) throws Exception {
        Transaction transaction = begin();
        byte[] value = new byte[size];
        ByteBuffer.wrap(value).putLong(System.nanoTime());
        producer.newMessage(transaction).value(value).send();
        transaction.commit().get();
    }

    private static byte[][] values(int count, int size) {
        Random random = new Random(count);
        byte[][] found = new byte[count][size];
        for (byte[] value : found) {
            random.nextBytes(value);
        }
        return found;
    }

    private static ObjectNode outcome(double seconds, int transactions, long rows, List<Double> latencies) {
        ObjectNode found = JSON.createObjectNode();
        found.put("seconds", seconds).put("transactions", transactions).put("rows", rows);
        ArrayNode list = found.putArray("latencies_ms");
        synchronized (latencies) {
            latencies.forEach(each -> list.add(Math.round(each * 1e3) / 1e3));
        }
        return found;
    }
}
