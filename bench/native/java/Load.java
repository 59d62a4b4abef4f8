import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.function.IntPredicate;

/**
 * The loads of peer_clients.py for clients in Java: each is a process of its own.
 *
 * <p>CLIENT VERB URL [name=number ...] prints one JSON object of figures. Every message is made inside
 * the timing.
 */
final class Load {
    static final String QUEUE = "orders";
    static final String GROUP = "billing";
    static final int SMALL = 100;
    static final int LARGE = 1024;
    /** Longest that a broker may take until it can be used, a message until it comes. */
    static final long PATIENCE_S = 30;

    /** What a client can do, on one connection. */
    interface Client extends AutoCloseable {
        /** Sends a message; calls {@code answered} when it is durable, with what went wrong if anything did. */
        void send(byte[] body, Consumer<Throwable> answered) throws Exception;

        /** Sends messages of 100 bytes, so many under way at a time. */
        default void bulk(int count, int underWay) throws Exception {
            Window window = new Window(underWay);
            for (int number = 0; number < count; number++) {
                window.enter();
                send(body(number, SMALL), window::leave);
            }
            window.empty();
        }

        /** Takes messages by so many at most and acknowledges them, until {@code taken} says no. */
        void consume(int of, IntPredicate taken) throws Exception;

        /** Calls {@code taken} with each message that comes from now on; returns when it listens. */
        void subscribe(Consumer<byte[]> taken) throws Exception;

        /** Makes topics and sends a message to each, so many under way at a time. */
        void topics(int count, int underWay) throws Exception;
    }

    /**
     * How a client is made: when it returns, the topic can be used. What it throws may be that the
     * broker takes connections and is not ready yet: it is called again, see {@code patiently}.
     */
    interface Connect {
        Client open(String url) throws Exception;
    }

    /**
     * Calls until an answer comes, and returns that; outside the timing. What was thrown last is thrown
     * when {@code PATIENCE_S} are over.
     */
    static <T> T patiently(String what, Callable<T> asked) throws Exception {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (true) {
            try {
                return asked.call();
            } catch (InterruptedException error) {
                throw error;
            } catch (Exception error) {
                if (System.nanoTime() >= until) {
                    throw new Exception(what + ": not within " + PATIENCE_S + " s", error);
                }
                Thread.sleep(20);
            }
        }
    }

    /** Messages under way, at most so many; the first that goes wrong ends the process. */
    static final class Window {
        private final Semaphore free;
        private final int size;
        private final AtomicReference<Throwable> wrong = new AtomicReference<>();

        Window(int size) {
            this.free = new Semaphore(size);
            this.size = size;
        }

        void enter() throws Exception {
            free.acquire();
            check();
        }

        void leave(Throwable error) {
            if (error != null) {
                wrong.compareAndSet(null, error);
            }
            free.release();
        }

        void empty() throws Exception {
            free.acquire(size);
            free.release(size);
            check();
        }

        private void check() throws Exception {
            if (wrong.get() != null) {
                throw new Exception("a message was not answered well", wrong.get());
            }
        }
    }

    private final Connect connect;
    private final String url;
    private final Map<String, Double> given = new HashMap<>();

    private Load(Connect connect, String url, String[] settings) {
        this.connect = connect;
        this.url = url;
        for (String one : settings) {
            String[] parts = one.split("=", 2);
            given.put(parts[0], Double.valueOf(parts[1]));
        }
    }

    /** Runs the verb that the command line names; the threads of clients do not keep the process. */
    static void main(String[] arguments, Connect connect) {
        int status = 1;
        try {
            run(arguments, connect);
            status = 0;
        } catch (Exception error) {
            error.printStackTrace();
        } finally {
            System.out.flush();
            Runtime.getRuntime().halt(status);
        }
    }

    private static void run(String[] arguments, Connect connect) throws Exception {
        String[] settings = Arrays.copyOfRange(arguments, 2, arguments.length);
        Load load = new Load(connect, arguments[1], settings);
        String verb = arguments[0].substring(arguments[0].indexOf('_') + 1);
        Map<String, Double> found =
                switch (verb) {
                    case "sends" -> load.sends();
                    case "bulk" -> load.bulk();
                    case "consume" -> load.consume();
                    case "end_to_end" -> load.endToEnd();
                    case "topics" -> load.topics();
                    default -> throw new IllegalArgumentException("no verb " + arguments[0]);
                };
        StringBuilder told = new StringBuilder("{");
        for (Map.Entry<String, Double> one : found.entrySet()) {
            told.append(told.length() > 1 ? ", " : "")
                    .append(String.format(Locale.ROOT, "\"%s\": %.6f", one.getKey(), one.getValue()));
        }
        System.out.println(told.append("}"));
    }

    /** Makes a message: its number, and what fills it. */
    static byte[] body(long number, int size) {
        byte[] made = new byte[size];
        Arrays.fill(made, (byte) 'x');
        ByteBuffer.wrap(made).order(ByteOrder.LITTLE_ENDIAN).putLong(number);
        return made;
    }

    private Client open() throws Exception {
        return patiently("connect to " + url, () -> connect.open(url));
    }

    private Map<String, Double> sends() throws Exception {
        int connections = count("connections");
        int inFlight = count("in_flight");
        List<Client> clients = new ArrayList<>();
        for (int at = 0; at < connections; at++) {
            clients.add(open());
        }
        long began = System.nanoTime() + nanos("warm");
        long until = began + nanos("seconds");
        AtomicLong sent = new AtomicLong();
        List<Times> all = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        AtomicReference<Throwable> wrong = new AtomicReference<>();
        for (Client client : clients) {
            Times times = new Times();
            all.add(times);
            threads.add(
                    new Thread(
                            () -> {
                                try {
                                    lane(client, inFlight, began, until, sent, times);
                                } catch (Exception error) {
                                    wrong.compareAndSet(null, error);
                                }
                            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        if (wrong.get() != null) {
            throw new Exception("a sender failed", wrong.get());
        }
        double[] taken = Times.together(all);
        return of(
                "per_s", taken.length / given.get("seconds"),
                "p50_ms", percentile(taken, 0.5) / 1e6,
                "p99_ms", percentile(taken, 0.99) / 1e6,
                "count", (double) sent.get());
    }

    private static void lane(
            Client client, int inFlight, long began, long until, AtomicLong sent, Times times)
            throws Exception {
        Window window = new Window(inFlight);
        while (true) {
            window.enter();
            long at = System.nanoTime();
            if (at >= until) {
                window.leave(null);
                break;
            }
            client.send(
                    body(sent.incrementAndGet(), LARGE),
                    error -> {
                        if (at >= began && error == null) {
                            times.add(System.nanoTime() - at);
                        }
                        window.leave(error);
                    });
        }
        window.empty();
    }

    private Map<String, Double> bulk() throws Exception {
        try (Client client = open()) {
            int count = count("count");
            int of = count("of");
            int warm = count("warm_count");
            client.bulk(warm, of);
            long began = System.nanoTime();
            client.bulk(count, of);
            return of("per_s", count / since(began), "count", (double) (count + warm));
        }
    }

    private Map<String, Double> consume() throws Exception {
        try (Client client = open()) {
            int count = count("count");
            int warm = count("warm_count");
            long[] state = new long[4]; // taken, taken before the clock began, its begin, its end
            client.consume(
                    count("of"),
                    taken -> {
                        state[0] += taken;
                        state[3] = System.nanoTime();
                        if (state[2] == 0 && state[0] >= warm) {
                            state[1] = state[0];
                            state[2] = state[3];
                        }
                        return state[0] < count;
                    });
            double seconds = (state[3] - state[2]) / 1e9;
            return of("per_s", (state[0] - state[1]) / seconds, "count", (double) state[0]);
        }
    }

    private Map<String, Double> endToEnd() throws Exception {
        double perS = given.get("per_s");
        int skipped = (int) (perS * given.get("warm"));
        int total = skipped + (int) (perS * given.get("seconds"));
        double[] taken = new double[total];
        CountDownLatch all = new CountDownLatch(total);
        try (Client producer = open();
                Client consumer = open()) {
            long[] began = new long[1];
            consumer.subscribe(
                    body -> {
                        int number = (int) ByteBuffer.wrap(body).order(ByteOrder.LITTLE_ENDIAN).getLong();
                        taken[number] = System.nanoTime() - due(began[0], number, perS);
                        all.countDown();
                    });
            Window window = new Window(100_000);
            began[0] = System.nanoTime() + 100_000_000;
            for (int number = 0; number < total; number++) {
                LockSupport.parkNanos(due(began[0], number, perS) - System.nanoTime());
                window.enter();
                producer.send(body(number, LARGE), window::leave);
            }
            window.empty();
            if (!all.await(PATIENCE_S, TimeUnit.SECONDS)) {
                throw new IllegalStateException(all.getCount() + " messages did not come");
            }
        }
        double[] counted = Arrays.copyOfRange(taken, skipped, total);
        return of(
                "p50_ms", percentile(counted, 0.5) / 1e6,
                "p99_ms", percentile(counted, 0.99) / 1e6,
                "count", (double) total);
    }

    private static long due(long began, int number, double perS) {
        return began + (long) (number / perS * 1e9);
    }

    private Map<String, Double> topics() throws Exception {
        try (Client client = open()) {
            long began = System.nanoTime();
            client.topics(count("count"), count("of"));
            return of("seconds", since(began), "count", given.get("count"));
        }
    }

    /** Times in nanoseconds, added by one thread at a time. */
    private static final class Times {
        private double[] values = new double[1 << 16];
        private int size;

        synchronized void add(double value) {
            if (size == values.length) {
                values = Arrays.copyOf(values, size * 2);
            }
            values[size++] = value;
        }

        static double[] together(List<Times> parts) {
            double[] all = new double[parts.stream().mapToInt(part -> part.size).sum()];
            int at = 0;
            for (Times part : parts) {
                System.arraycopy(part.values, 0, all, at, part.size);
                at += part.size;
            }
            return all;
        }
    }

    private int count(String name) {
        return given.get(name).intValue();
    }

    private long nanos(String name) {
        return (long) (given.get(name) * 1e9);
    }

    private static double since(long began) {
        return (System.nanoTime() - began) / 1e9;
    }

    private static double percentile(double[] values, double share) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        return sorted[Math.min(sorted.length - 1, (int) (share * sorted.length))];
    }

    private static Map<String, Double> of(Object... pairs) {
        Map<String, Double> found = new LinkedHashMap<>();
        for (int at = 0; at < pairs.length; at += 2) {
            found.put((String) pairs[at], (Double) pairs[at + 1]);
        }
        return found;
    }
}
