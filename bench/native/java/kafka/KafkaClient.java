import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.IntPredicate;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka by its own client: acks=all, idempotent (the defaults), one partition; see Load. */
final class KafkaClient implements Load.Client {
    private final String servers;
    private KafkaProducer<byte[], byte[]> producer;
    private KafkaConsumer<byte[], byte[]> consumer;
    private volatile boolean closed;
    private Thread polling;

    private KafkaClient(String url) throws Exception {
        servers = url.replace("kafka://", "");
        create(List.of(Load.QUEUE));
        awaitLeader();
    }

    public static void main(String[] arguments) throws Exception {
        boolean bulk = arguments[0].endsWith("_bulk");
        Load.main(arguments, url -> new KafkaClient(url).producing(bulk ? 1 : 0));
    }

    private void create(List<String> names) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.createTopics(names.stream().map(name -> new NewTopic(name, 1, (short) 1)).toList())
                    .all()
                    .get();
        } catch (ExecutionException error) {
            if (!(error.getCause() instanceof TopicExistsException)) {
                throw error;
            }
        }
    }

    /** Waits until the topic's partition has a leader that the broker tells its clients of. */
    private void awaitLeader() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            Load.patiently(
                    "leader of " + Load.QUEUE,
                    () -> {
                        TopicDescription told =
                                admin.describeTopics(List.of(Load.QUEUE)).allTopicNames().get().get(Load.QUEUE);
                        Node leader = told.partitions().get(0).leader();
                        if (leader == null || leader.isEmpty()) {
                            throw new IllegalStateException("no leader");
                        }
                        return leader;
                    });
        }
    }

    /**
     * Makes the producer: room in a batch for all that is under way (the default of 16 KiB means a
     * flush for each 150 small messages), and a linger where many are.
     */
    private KafkaClient producing(int lingerMs) {
        Properties given = new Properties();
        given.put("bootstrap.servers", servers);
        given.put("acks", "all");
        given.put("linger.ms", lingerMs);
        given.put("batch.size", 1 << 18);
        producer = new KafkaProducer<>(given, new ByteArraySerializer(), new ByteArraySerializer());
        producer.partitionsFor(Load.QUEUE);
        return this;
    }

    private void sendTo(String topic, byte[] body, Consumer<Throwable> answered) {
        producer.send(new ProducerRecord<>(topic, body), (where, error) -> answered.accept(error));
    }

    @Override
    public void send(byte[] body, Consumer<Throwable> answered) {
        sendTo(Load.QUEUE, body, answered);
    }

    private KafkaConsumer<byte[], byte[]> consumer(int of) {
        Properties given = new Properties();
        given.put("bootstrap.servers", servers);
        given.put("group.id", Load.GROUP);
        given.put("enable.auto.commit", "false");
        given.put("auto.offset.reset", "earliest");
        given.put("max.poll.records", of);
        return new KafkaConsumer<>(given, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    @Override
    public void consume(int of, IntPredicate taken) {
        consumer = consumer(of);
        consumer.subscribe(List.of(Load.QUEUE));
        boolean more = true;
        while (more) {
            ConsumerRecords<byte[], byte[]> found = consumer.poll(Duration.ofSeconds(1));
            if (found.isEmpty()) {
                continue;
            }
            for (ConsumerRecord<byte[], byte[]> one : found) {
                if (one.value().length == 0) {
                    throw new IllegalStateException("a message has no body");
                }
            }
            consumer.commitSync();
            more = taken.test(found.count());
        }
    }

    @Override
    public void subscribe(Consumer<byte[]> taken) throws Exception {
        CountDownLatch there = new CountDownLatch(1);
        polling =
                new Thread(
                        () -> {
                            try (KafkaConsumer<byte[], byte[]> one = consumer(1000)) {
                                one.assign(List.of(new TopicPartition(Load.QUEUE, 0)));
                                one.seekToEnd(one.assignment());
                                one.position(new TopicPartition(Load.QUEUE, 0));
                                there.countDown();
                                while (!closed) {
                                    ConsumerRecords<byte[], byte[]> found = one.poll(Duration.ofMillis(100));
                                    found.forEach(record -> taken.accept(record.value()));
                                    if (!found.isEmpty()) {
                                        one.commitAsync();
                                    }
                                }
                            }
                        });
        polling.start();
        if (!there.await(Load.PATIENCE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the consumer has no position");
        }
    }

    @Override
    public void topics(int count, int underWay) throws Exception {
        create(IntStream.range(0, count).mapToObj(number -> "topic." + number).toList());
        Load.Window window = new Load.Window(underWay);
        for (int number = 0; number < count; number++) {
            window.enter();
            sendTo("topic." + number, Load.body(number, Load.SMALL), window::leave);
        }
        window.empty();
    }

    @Override
    public void close() throws Exception {
        closed = true;
        if (polling != null) {
            polling.join();
        }
        if (consumer != null) {
            consumer.close();
        }
        producer.close();
    }
}
