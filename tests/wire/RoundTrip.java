import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/** Reads lines "class version hex"; answers each with what Kafka writes back, a tab, and what it understood as JSON. */
public class RoundTrip {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = line.split(" ", -1);
            try {
                out.println(answer(words[0], Short.parseShort(words[1]), HexFormat.of().parseHex(words[2])));
            } catch (Exception problem) {
                Throwable cause = problem.getCause() == null ? problem : problem.getCause();
                out.println("failed: " + cause.toString().replace('\n', ' '));
            }
        }
        out.flush();
    }

    private static String answer(String name, short version, byte[] bytes) throws Exception {
        Message message = (Message) Class.forName(name).getDeclaredConstructor().newInstance();
        ByteBuffer input = ByteBuffer.wrap(bytes);
        message.read(new ByteBufferAccessor(input), version);
        if (input.hasRemaining()) {
            return "failed: " + input.remaining() + " bytes were left";
        }
        Class<?> converter = Class.forName(name + "JsonConverter");
        Method write = converter.getMethod("write", message.getClass(), short.class);
        Object json = write.invoke(null, message, version);
        ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] back = new byte[written.remaining()];
        written.get(back);
        return HexFormat.of().formatHex(back) + "\t" + json;
    }
}
