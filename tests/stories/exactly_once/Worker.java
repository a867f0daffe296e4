import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
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

/** The same with the Java client, which has transactions of the second version. Arguments: BOOTSTRAP GROUP WORKER BATCH. */
public class Worker {
    public static void main(String[] args) {
        Properties reading = new Properties();
        reading.putAll(Map.of("bootstrap.servers", args[0], "group.id", args[1], "isolation.level", "read_committed",
            "auto.offset.reset", "earliest", "enable.auto.commit", "false", "session.timeout.ms", "2000",
            "heartbeat.interval.ms", "300", "max.poll.records", args[3]));
        Properties writing = new Properties();
        writing.putAll(Map.of("bootstrap.servers", args[0], "transactional.id", args[1] + "-" + args[2],
            "transaction.timeout.ms", "5000", "delivery.timeout.ms", "20000", "request.timeout.ms", "5000", "linger.ms", "1"));
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
        KafkaProducer<String, String> producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
        try {
            producer.initTransactions();
            consumer.subscribe(List.of("input"));
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) continue;
                Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();
                producer.beginTransaction();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>("output", record.partition(), record.key(), "<" + record.value() + ">"));
                    done.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(done, consumer.groupMetadata());
                producer.commitTransaction();
            }
        } catch (KafkaException error) {
            System.err.println(error);
            Runtime.getRuntime().halt(1);
        }
    }
}
