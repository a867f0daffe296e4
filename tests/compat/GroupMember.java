import java.time.Duration;
import java.util.Collection;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

/**
 * A member of a group through Apache Kafka's client. Arguments: bootstrap, group, protocol (classic or consumer),
 * topic, or an expression after "^", and pairs of settings. It says what it has whenever that changes, and how many
 * records it has read; it leaves when its standard input ends.
 */
public class GroupMember {
    static final TreeSet<String> has = new TreeSet<>();

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[1]);
        settings.put("group.protocol", args[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        for (int place = 4; place < args.length; place += 2) {
            settings.put(args[place], args[place + 1]);
        }
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings);
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException ended) {
                // the parent is gone
            }
            consumer.wakeup();
        });
        watcher.setDaemon(true);
        watcher.start();
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                partitions.forEach(one -> has.add(one.toString()));
                System.out.println("has " + String.join(",", has));
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                partitions.forEach(one -> has.remove(one.toString()));
                System.out.println("has " + String.join(",", has));
            }
        };
        if (args[3].startsWith("^")) {
            consumer.subscribe(new SubscriptionPattern(args[3].substring(1)), listener);
        } else {
            consumer.subscribe(java.util.List.of(args[3]), listener);
        }
        long read = 0;
        try {
            while (true) {
                int count = consumer.poll(Duration.ofMillis(100)).count();
                if (count > 0) {
                    read += count;
                    consumer.commitSync();
                    System.out.println("read " + read);
                }
            }
        } catch (WakeupException asked) {
            consumer.close();
            System.out.println("left");
        }
    }
}
