import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/** For each line, which describes a partition and what is asked of it, the record that Apache Kafka would write. */
public class PartitionChanges {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.append(answer(line.split(";", -1))).append('\n');
        }
        System.out.print(answers);
    }

    private static String answer(String[] fields) {
        int[] replicas = array(fields[0]);
        PartitionRegistration partition = new PartitionRegistration.Builder()
            .setReplicas(replicas)
            .setIsr(array(fields[1]))
            .setRemovingReplicas(array(fields[2]))
            .setAddingReplicas(array(fields[3]))
            .setLeader(Integer.parseInt(fields[4]))
            .setLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(fields[5])))
            .setLeaderEpoch(7)
            .setPartitionEpoch(11)
            .setElr(array(fields[6]))
            .setLastKnownElr(array(fields[7]))
            .setDirectories(fields[8].isEmpty() ? DirectoryId.migratingArray(replicas.length) : directories(fields[8]))
            .build();
        List<Integer> acceptable = list(fields[9]);
        PartitionChangeBuilder builder = new PartitionChangeBuilder(
            partition, new Uuid(1, 1), 0, acceptable::contains, MetadataVersion.fromFeatureLevel(Short.parseShort(fields[10])),
            Integer.parseInt(fields[11]), fields[12].equals("1"));
        builder.setElection(PartitionChangeBuilder.Election.valueOf(fields[13]));
        builder.setDefaultDirProvider(broker -> new Uuid(0, 1));
        if (!fields[14].isEmpty()) builder.setUncleanShutdownReplicas(list(fields[14]));
        builder.setTargetIsr(list(fields[15]));
        builder.setTargetReplicas(list(fields[16]));
        builder.setTargetRemoving(list(fields[17]));
        builder.setTargetAdding(list(fields[18]));
        builder.setTargetLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(fields[19])));
        if (!fields[20].isEmpty()) {
            String[] pair = fields[20].split(":");
            builder.setDirectory(Integer.parseInt(pair[0]), new Uuid(0, Long.parseLong(pair[1])));
        }
        Optional<ApiMessageAndVersion> built = builder.build();
        if (built.isEmpty()) return "nothing";
        PartitionChangeRecord record = (PartitionChangeRecord) built.get().message();
        return String.join(";", text(record.isr()), String.valueOf(record.leader()), text(record.replicas()),
            text(record.removingReplicas()), text(record.addingReplicas()), String.valueOf(record.leaderRecoveryState()),
            record.directories() == null ? "null" : lows(record.directories()),
            text(record.eligibleLeaderReplicas()), text(record.lastKnownElr()));
    }

    private static List<Integer> list(String field) {
        List<Integer> values = new ArrayList<>();
        if (!field.isEmpty()) for (String value : field.split(",")) values.add(Integer.parseInt(value));
        return values;
    }

    private static int[] array(String field) {
        return list(field).stream().mapToInt(Integer::intValue).toArray();
    }

    private static Uuid[] directories(String field) {
        return list(field).stream().map(low -> new Uuid(0, low)).toArray(Uuid[]::new);
    }

    private static String lows(List<Uuid> directories) {
        List<String> values = new ArrayList<>();
        for (Uuid directory : directories) values.add(String.valueOf(directory.getLeastSignificantBits()));
        return String.join(",", values);
    }

    private static String text(List<Integer> values) {
        if (values == null) return "null";
        List<String> texts = new ArrayList<>();
        for (Integer value : values) texts.add(value.toString());
        return String.join(",", texts);
    }
}
