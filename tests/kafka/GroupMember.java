import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Scanner;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/**
 * A member of a group through Apache Kafka's own client, for the stories of groups: it writes the same diary as the
 * members in Python (tests/stories/groups/diary.py) and takes the same orders. Its arguments are the topic, and settings
 * of the consumer as NAME=VALUE.
 */
public class GroupMember implements ConsumerRebalanceListener {
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Map<TopicPartition, Long> pending = new HashMap<>();
    private final ConcurrentLinkedQueue<String> orders = new ConcurrentLinkedQueue<>();

    GroupMember(Properties settings) {
        String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        settings.put("key.deserializer", bytes);
        settings.put("value.deserializer", bytes);
        consumer = new KafkaConsumer<>(settings);
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        Arrays.stream(arguments).skip(1).map(each -> each.split("=", 2)).forEach(each -> settings.put(each[0], each[1]));
        new GroupMember(settings).run(arguments[0]);
    }

    private void run(String topic) throws Exception {
        Thread reader = new Thread(() -> {
            Scanner lines = new Scanner(System.in);
            while (lines.hasNextLine()) {
                orders.add(lines.nextLine());
            }
            Runtime.getRuntime().halt(0);
        });
        reader.setDaemon(true);
        reader.start();
        if (topic.startsWith("^")) {
            consumer.subscribe(Pattern.compile(topic), this);
        } else {
            consumer.subscribe(List.of(topic), this);
        }
        tell("subscribed", "");
        while (true) {
            String order = orders.poll();
            if (order != null && order.equals("leave")) {
                break;
            }
            if (order != null && order.startsWith("hang ")) {
                tell("hangs", "");
                Thread.sleep((long) (1000 * Double.parseDouble(order.substring(5))));
                tell("woke", "");
            }
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                String place = "\"topic\":\"" + record.topic() + "\",\"partition\":" + record.partition();
                tell("record", "," + place + ",\"offset\":" + record.offset());
                pending.put(new TopicPartition(record.topic(), record.partition()), record.offset() + 1);
            }
            commit(new HashMap<>(pending));
        }
        consumer.close();
        tell("left", "");
        Runtime.getRuntime().halt(0);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        tell("assigned", places(partitions));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        Map<TopicPartition, Long> mine = new HashMap<>(pending);
        mine.keySet().retainAll(partitions);
        commit(mine);
        pending.keySet().removeAll(partitions);
        tell("revoked", places(partitions));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        pending.keySet().removeAll(partitions);
        tell("lost", places(partitions));
    }

    private void commit(Map<TopicPartition, Long> offsets) {
        if (offsets.isEmpty()) {
            return;
        }
        String told = offsets.entrySet().stream()
            .map(each -> "[\"" + each.getKey().topic() + "\"," + each.getKey().partition() + "," + each.getValue() + "]")
            .collect(Collectors.joining(",", ",\"offsets\":[", "]"));
        String began = ",\"began\":" + System.nanoTime() / 1e9;
        try {
            Map<TopicPartition, OffsetAndMetadata> asked = new HashMap<>();
            offsets.forEach((place, offset) -> asked.put(place, new OffsetAndMetadata(offset)));
            consumer.commitSync(asked);
        } catch (KafkaException error) {
            if (error instanceof CommitFailedException) {
                pending.keySet().removeAll(offsets.keySet());
            }
            tell("refused", told + began + ",\"error\":\"" + error.getClass().getSimpleName() + "\"");
            return;
        }
        offsets.forEach(pending::remove);
        tell("committed", told + began);
    }

    private static String places(Collection<TopicPartition> partitions) {
        return partitions.stream()
            .map(each -> "[\"" + each.topic() + "\"," + each.partition() + "]")
            .collect(Collectors.joining(",", ",\"places\":[", "]"));
    }

    /** The clock of Python's time.monotonic() is the same on Linux: both count from the start of the machine. */
    private static synchronized void tell(String event, String more) {
        System.out.println("{\"at\":" + System.nanoTime() / 1e9 + ",\"event\":\"" + event + "\"" + more + "}");
        System.out.flush();
    }
}
