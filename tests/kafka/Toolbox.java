import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Apache Kafka's command-line tools, one after the other in one JVM: half of what a tool takes is the start of its JVM.
 *
 * A command comes on standard input as texts: how many, then each one (a length and its bytes). The first is what the
 * tool is to read, the second its class, the others its arguments. Its exit code, what it wrote to standard output and
 * what it wrote to standard error go back.
 */
public class Toolbox {
    private static class Ended extends Error { }

    private static Integer code;

    /** The first word counts: a tool may catch what is thrown, complain about it, and end again. */
    private static void end(int status, String message) {
        if (code == null) {
            if (message != null) {
                System.err.println(message);
            }
            code = status;
            PrintStream nowhere = new PrintStream(OutputStream.nullOutputStream());
            System.setOut(nowhere);
            System.setErr(nowhere);
        }
        throw new Ended();
    }

    public static void main(String[] none) throws Exception {
        DataInputStream commands = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        PrintStream ownErrors = System.err;
        Exit.setExitProcedure(Toolbox::end);
        Exit.setHaltProcedure(Toolbox::end);
        while (true) {
            String[] command;
            try {
                command = new String[commands.readInt()];
            } catch (EOFException over) {
                Runtime.getRuntime().halt(0);
                return;
            }
            for (int place = 0; place < command.length; place++) {
                command[place] = new String(commands.readNBytes(commands.readInt()), StandardCharsets.UTF_8);
            }
            ByteArrayOutputStream output = new ByteArrayOutputStream();
            ByteArrayOutputStream errors = new ByteArrayOutputStream();
            run(command, output, errors);
            System.setErr(ownErrors);
            answers.writeInt(code == null ? 0 : code);
            for (ByteArrayOutputStream written : Arrays.asList(output, errors)) {
                byte[] bytes = written.toByteArray();
                answers.writeInt(bytes.length);
                answers.write(bytes);
            }
            answers.flush();
        }
    }

    private static void run(String[] command, ByteArrayOutputStream output, ByteArrayOutputStream errors) {
        PrintStream out = new PrintStream(output, true, StandardCharsets.UTF_8);
        PrintStream err = new PrintStream(errors, true, StandardCharsets.UTF_8);
        System.setIn(new ByteArrayInputStream(command[0].getBytes(StandardCharsets.UTF_8)));
        System.setOut(out);
        System.setErr(err);
        code = null;
        String[] arguments = Arrays.copyOfRange(command, 2, command.length);
        try {
            Class.forName(command[1]).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (code == null) {
                thrown.getCause().printStackTrace(err);
                code = 1;
            }
        } catch (ReflectiveOperationException wrong) {
            wrong.printStackTrace(err);
            code = 1;
        }
        out.flush();
        err.flush();
    }
}
