import java.io.BufferedWriter;
import java.io.FileWriter;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Apache Kafka's own client in one JVM, three diaries: an idempotent producer, a member of a group of the consumer
 * protocol, and one that consumes, transforms and produces in transactions of the second version.
 *
 * Arguments: BOOTSTRAP FOLDER, then TOPIC PARTITIONS RATE of the producer, GROUP TOPIC of the member, GROUP TOPIC TARGET
 * of the copier. It ends when its standard input does.
 */
public class ChaosClient {
    private static volatile boolean ending;

    /** A diary, as tools/chaos/history.py reads it. Its times are of the machine's monotonic clock, as Python's are. */
    private static class Pen {
        private final BufferedWriter file;

        Pen(String folder, String name, String group, boolean committed) throws IOException {
            file = new BufferedWriter(new FileWriter(folder + "/" + name + ".diary"));
            line("{\"client\":" + text(name) + ",\"group\":" + (group == null ? "null" : text(group))
                + ",\"read_committed\":" + committed + "}");
        }

        void write(String what, String told) {
            line(String.format("{\"is\":\"%s\",\"at\":%.6f,%s}", what, System.nanoTime() / 1e9, told));
        }

        void trouble(Exception error) {
            write("trouble", "\"why\":" + text(error.toString()));
        }

        void places(String what, Collection<TopicPartition> places) {
            List<String> told = new ArrayList<>();
            for (TopicPartition place : places) told.add(place(place.topic(), place.partition()));
            write(what, "\"places\":[" + String.join(",", told) + "]");
        }

        void read(ConsumerRecord<String, String> record) {
            write("read", "\"place\":" + place(record.topic(), record.partition()) + ",\"offset\":" + record.offset()
                + ",\"value\":" + text(record.value()));
        }

        void moved(Map<TopicPartition, OffsetAndMetadata> offsets) {
            List<String> told = new ArrayList<>();
            offsets.forEach((place, to) -> told.add("[" + place(place.topic(), place.partition()) + "," + to.offset() + "]"));
            write("moved", "\"offsets\":[" + String.join(",", told) + "]");
        }

        synchronized void line(String line) {
            try {
                file.write(line + "\n");
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        synchronized void flush() {
            try {
                file.flush();
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    private static String text(String value) {
        return "\"" + value.replaceAll("[\"\\\\\\p{Cntrl}]", " ") + "\"";
    }

    private static String place(String topic, int partition) {
        return "[" + text(topic) + "," + partition + "]";
    }

    private interface Work {
        void run() throws Exception;
    }

    /** A thread whose death is written down: whoever reads the diary must not take it for silence. */
    private static Thread start(Pen pen, Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception error) {
                pen.write("gave-up", "\"why\":" + text(error.toString()));
            }
            pen.flush();
        });
        thread.start();
        return thread;
    }

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], folder = args[1];
        Pen writes = new Pen(folder, "java", null, false);
        Pen reads = new Pen(folder, "java-member", args[5], false);
        Pen copies = new Pen(folder, "java-copier", args[7], true);
        List<Thread> threads = List.of(
            start(writes, () -> produce(writes, bootstrap, args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]))),
            start(reads, () -> consume(reads, bootstrap, args[5], args[6])),
            start(copies, () -> new Copier(copies, bootstrap, args[7], args[8], args[9]).run()));
        while (System.in.read() >= 0) { }
        ending = true;
        for (Thread thread : threads) thread.join();
    }

    private static Properties producing(String bootstrap) {
        Properties settings = new Properties();
        settings.putAll(Map.of("bootstrap.servers", bootstrap, "acks", "all", "linger.ms", "1",
            "request.timeout.ms", "5000", "delivery.timeout.ms", "120000", "max.block.ms", "120000",
            "reconnect.backoff.max.ms", "500"));
        return settings;
    }

    private static Properties consuming(String bootstrap, String group) {
        Properties settings = new Properties();
        settings.putAll(Map.of("bootstrap.servers", bootstrap, "group.id", group, "auto.offset.reset", "earliest",
            "enable.auto.commit", "false", "max.poll.records", "200", "request.timeout.ms", "5000",
            "default.api.timeout.ms", "30000", "reconnect.backoff.max.ms", "500"));
        return settings;
    }

    private static void produce(Pen pen, String bootstrap, String topic, int partitions, int rate) throws Exception {
        var producer = new KafkaProducer<>(producing(bootstrap), new StringSerializer(), new StringSerializer());
        long due = System.nanoTime();
        for (long number = 0; !ending; number++) {
            String value = "java:" + number;
            int partition = (int) (number % partitions);
            pen.write("sent", "\"place\":" + place(topic, partition) + ",\"value\":" + text(value));
            producer.send(new ProducerRecord<>(topic, partition, null, value), (where, error) -> told(pen, topic, value, partition,
                where == null ? -1 : where.offset(), error));
            due = Math.max(due + 1_000_000_000L / rate, System.nanoTime() - 1_000_000_000L);
            Thread.sleep(Math.max(0, (due - System.nanoTime()) / 1_000_000));
            if (number % 100 == 0) pen.flush();
        }
        producer.close();
    }

    private static void told(Pen pen, String topic, String value, int partition, long offset, Exception error) {
        if (error != null) {
            pen.write("failed", "\"value\":" + text(value) + ",\"why\":" + text(error.toString()));
        } else {
            pen.write("acked", "\"place\":" + place(topic, partition) + ",\"offset\":" + offset + ",\"value\":" + text(value));
        }
    }

    /** Writes down which partitions a member has. */
    private static class Assignments implements ConsumerRebalanceListener {
        private final Pen pen;
        private final Runnable before;

        Assignments(Pen pen, Runnable before) {
            this.pen = pen;
            this.before = before;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> places) {
            pen.places("given", places);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> places) {
            before.run();
            pen.places("taken", places);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> places) {
            pen.places("taken", places);
        }
    }

    private static void consume(Pen pen, String bootstrap, String group, String topic) {
        Properties settings = consuming(bootstrap, group);
        settings.put("group.protocol", "consumer");
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();
        Runnable commit = () -> {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>(done);
            done.clear();
            if (offsets.isEmpty()) return;
            try {
                consumer.commitSync(offsets);
                pen.moved(offsets);
            } catch (KafkaException error) {
                pen.trouble(error);
            }
        };
        consumer.subscribe(List.of(topic), new Assignments(pen, commit));
        long committed = System.nanoTime();
        while (!ending) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                pen.read(record);
                done.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            if (System.nanoTime() - committed > 300_000_000L) {
                commit.run();
                committed = System.nanoTime();
                pen.flush();
            }
        }
        commit.run();
        consumer.close();
    }

    /** A member that can't go on is replaced by a new one, and so is a producer. */
    private static class Copier {
        private final Pen pen;
        private final String bootstrap, group, topic, target;
        private KafkaConsumer<String, String> consumer;
        private KafkaProducer<String, String> producer;
        private long number;

        Copier(Pen pen, String bootstrap, String group, String topic, String target) {
            this.pen = pen;
            this.bootstrap = bootstrap;
            this.group = group;
            this.topic = topic;
            this.target = target;
        }

        void run() {
            while (!ending) {
                try {
                    open();
                    while (!ending) {
                        copy(consumer.poll(Duration.ofMillis(200)));
                        pen.flush();
                    }
                } catch (KafkaException error) {
                    pen.trouble(error);
                } finally {
                    close();
                }
            }
        }

        private void open() {
            Properties writing = producing(bootstrap), reading = consuming(bootstrap, group);
            writing.putAll(Map.of("transactional.id", "java-copier", "transaction.timeout.ms", "10000", "delivery.timeout.ms", "60000"));
            reading.putAll(Map.of("isolation.level", "read_committed", "session.timeout.ms", "6000", "heartbeat.interval.ms", "500"));
            producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
            producer.initTransactions();
            consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(topic), new Assignments(pen, () -> { }));
        }

        private void close() {
            for (AutoCloseable one : new AutoCloseable[] {consumer, producer}) {
                try {
                    if (one != null) one.close();
                } catch (Exception error) {
                    pen.trouble(error);
                }
            }
            consumer = null;
            producer = null;
        }

        private void copy(ConsumerRecords<String, String> records) {
            if (records.isEmpty()) return;
            Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();
            number++;
            boolean asked = false;
            String transaction = "\"transaction\":" + number;
            try {
                producer.beginTransaction();
                for (ConsumerRecord<String, String> record : records) {
                    pen.read(record);
                    String value = "java-copier:" + number + ":" + record.topic() + "-" + record.partition() + ":" + record.offset();
                    pen.write("sent", "\"place\":" + place(target, record.partition()) + ",\"value\":" + text(value) + ","
                        + transaction + ",\"source\":[" + text(topic) + "," + record.partition() + "," + record.offset() + "]");
                    int partition = record.partition();
                    producer.send(new ProducerRecord<>(target, partition, null, value), (where, error) -> told(pen, target, value,
                        partition, where == null ? -1 : where.offset(), error));
                    done.put(new TopicPartition(topic, partition), new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(done, consumer.groupMetadata());
                asked = true;
                pen.write("ending", transaction + ",\"commit\":true");
                producer.commitTransaction();
                pen.write("ended", transaction + ",\"outcome\":\"committed\"");
                pen.moved(done);
            } catch (KafkaException error) {
                pen.write("ended", transaction + ",\"outcome\":\"" + (asked ? "unknown" : "aborted") + "\"");
                throw error;
            }
        }
    }
}
