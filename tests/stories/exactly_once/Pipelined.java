import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Numbered records in transactions, with batches so small that several are always on their way.
 *
 * Arguments: BOOTSTRAP TOPIC PARTITIONS TRANSACTIONS RECORDS BYTES TRIES [NAME=VALUE ...]; RECORDS are those of one
 * transaction, TRIES how often one is tried. A record is its number and a filling; number n goes to partition n mod
 * PARTITIONS. Says `committed N` or `failed N WHY` for each try of transaction N.
 */
public class Pipelined {
    private final KafkaProducer<String, String> producer;
    private final String topic, filling;
    private final int partitions, records;

    Pipelined(String[] args) {
        Properties settings = new Properties();
        settings.putAll(Map.of("bootstrap.servers", args[0], "transactional.id", "pipelined"));
        for (int i = 7; i < args.length; i++) settings.put(args[i].split("=", 2)[0], args[i].split("=", 2)[1]);
        producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        topic = args[1];
        partitions = Integer.parseInt(args[2]);
        records = Integer.parseInt(args[4]);
        filling = ".".repeat(Integer.parseInt(args[5]));
    }

    public static void main(String[] args) {
        int transactions = Integer.parseInt(args[3]), tries = Integer.parseInt(args[6]);
        Pipelined sender = new Pipelined(args);
        sender.producer.initTransactions();
        for (int number = 0; number < transactions; number++) {
            int tried = 0;
            while (!sender.send(number) && ++tried < tries);
        }
        sender.producer.close();
    }

    /** One try of one transaction. An error after which nothing can be sent any more ends the program. */
    private boolean send(int transaction) {
        try {
            producer.beginTransaction();
            for (long number = (long) transaction * records; number < (transaction + 1L) * records; number++) {
                String value = (number + filling).substring(0, Math.max(filling.length(), 12));
                producer.send(new ProducerRecord<>(topic, (int) (number % partitions), null, value));
            }
            commit();
            System.out.println("committed " + transaction);
            return true;
        } catch (KafkaException error) {
            System.out.println("failed " + transaction + " " + error);
            producer.abortTransaction();
            return false;
        }
    }

    /** Whether it was committed isn't known after a timeout, so that only the same may be asked again. */
    private void commit() {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException error) {
                System.out.println("late " + error);
            }
        }
    }
}
