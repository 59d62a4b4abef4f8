import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.function.IntPredicate;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** RocketMQ by its own client, in Java's remoting protocol; only SEND_OK counts as sent; see Load. */
final class RocketClient implements Load.Client {
    private static final AtomicInteger CLIENTS = new AtomicInteger();
    private final String names;
    private final DefaultMQProducer producer;
    private DefaultLitePullConsumer pulling;
    private DefaultMQPushConsumer pushing;

    private RocketClient(String url) throws Exception {
        names = url.replace("rocketmq://", "");
        producer = new DefaultMQProducer("bench");
        producer.setNamesrvAddr(names);
        // Producers of one name would share a connection.
        producer.setInstanceName("bench" + CLIENTS.incrementAndGet());
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setSendMsgTimeout(30_000);
        producer.setDefaultTopicQueueNums(1);
        producer.start();
        try {
            answeredWell(producer.send(new Message(Load.QUEUE, "first".getBytes())));
            awaitRoute();
        } catch (Exception error) {
            producer.shutdown();
            throw error;
        }
    }

    /**
     * Waits until the name server knows the topic. A broker takes connections before it has told the name
     * server of itself, and a topic that a send makes is told later: "No route info of this topic" until
     * then, and a consumer that finds no route looks again after 20 s.
     */
    private void awaitRoute() throws Exception {
        Load.patiently(
                "route of " + Load.QUEUE,
                () -> {
                    int queues = producer.fetchPublishMessageQueues(Load.QUEUE).size();
                    if (queues != 1) {
                        throw new IllegalStateException(queues + " queues instead of one");
                    }
                    return queues;
                });
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("rocketmq.client.logUseSlf4j", "false");
        Load.main(arguments, RocketClient::new);
    }

    private static void answeredWell(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("a message was answered " + result.getSendStatus());
        }
    }

    private void sendTo(String topic, byte[] body, Consumer<Throwable> answered) throws Exception {
        producer.send(
                new Message(topic, body),
                new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        boolean well = result.getSendStatus() == SendStatus.SEND_OK;
                        answered.accept(well ? null : new IllegalStateException(result.toString()));
                    }

                    @Override
                    public void onException(Throwable error) {
                        answered.accept(error);
                    }
                });
    }

    @Override
    public void send(byte[] body, Consumer<Throwable> answered) throws Exception {
        sendTo(Load.QUEUE, body, answered);
    }

    /** Sends batches: RocketMQ's own way to have many messages in one request. */
    @Override
    public void bulk(int count, int underWay) throws Exception {
        for (int at = 0; at < count; at += underWay) {
            List<Message> messages = new ArrayList<>(underWay);
            for (int number = at; number < Math.min(count, at + underWay); number++) {
                messages.add(new Message(Load.QUEUE, Load.body(number, Load.SMALL)));
            }
            answeredWell(producer.send(messages));
        }
    }

    @Override
    public void consume(int of, IntPredicate taken) throws Exception {
        pulling = new DefaultLitePullConsumer(Load.GROUP);
        pulling.setNamesrvAddr(names);
        pulling.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        pulling.setPullBatchSize(of);
        pulling.setAutoCommit(false);
        pulling.subscribe(Load.QUEUE, "*");
        pulling.start();
        boolean more = true;
        while (more) {
            List<MessageExt> found = pulling.poll(1000);
            if (found.isEmpty()) {
                continue;
            }
            for (MessageExt one : found) {
                if (one.getBody().length == 0) {
                    throw new IllegalStateException("a message has no body");
                }
            }
            pulling.commit();
            more = taken.test(found.size());
        }
    }

    @Override
    public void subscribe(Consumer<byte[]> taken) throws Exception {
        pushing = new DefaultMQPushConsumer(Load.GROUP);
        pushing.setNamesrvAddr(names);
        pushing.setInstanceName("consumer");
        pushing.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        pushing.subscribe(Load.QUEUE, "*");
        CountDownLatch there = new CountDownLatch(1);
        ConcurrentHashMap<String, Boolean> seen = new ConcurrentHashMap<>();
        pushing.registerMessageListener(
                (MessageListenerConcurrently)
                        (messages, context) -> {
                            for (MessageExt one : messages) {
                                if (one.getBody().length != Load.LARGE) {
                                    there.countDown(); // what each client sends first
                                } else if (seen.putIfAbsent(one.getMsgId(), true) == null) {
                                    taken.accept(one.getBody());
                                }
                            }
                            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                        });
        pushing.start();
        if (!there.await(Load.PATIENCE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the consumer got nothing");
        }
    }

    @Override
    public void topics(int count, int underWay) throws Exception {
        Load.Window window = new Load.Window(underWay);
        for (int number = 0; number < count; number++) {
            window.enter();
            sendTo("topic_" + number, Load.body(number, Load.SMALL), window::leave);
        }
        window.empty();
    }

    @Override
    public void close() {
        if (pulling != null) {
            pulling.shutdown();
        }
        if (pushing != null) {
            pushing.shutdown();
        }
        producer.shutdown();
    }
}
