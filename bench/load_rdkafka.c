/* Load through librdkafka, the client that most programs use; one JSON object on stdout.
 *
 *   load_rdkafka produce   at=HOST:PORT topic=T partitions=N size=BYTES count=N [seconds=S] [queue=N] [acks=all]
 *                          [batch=MESSAGES]
 *   load_rdkafka consume   at=HOST:PORT topic=T partitions=N count=N [from=PARTITION] [patience=SECONDS]
 *   load_rdkafka first     at=HOST:PORT topic=T partitions=N
 *   load_rdkafka latency   at=HOST:PORT topic=T partitions=N count=N rate=PER_SECOND [skip=N] [acks=all] [size=BYTES]
 *                          [read=0] [samples=FILE]
 *   load_rdkafka survive   at=HOST:PORT topic=T partitions=N size=BYTES seconds=S
 *
 * produce sends as fast as it can: `count` messages or as many as `seconds` allow, and waits for every ack; at most
 * `batch` messages go into a batch. consume reads `count` messages from offset 0 on, of `partitions` partitions from
 * `from` on. first sends one message to each
 * partition at once: when it began, and when all were acknowledged. latency sends at a fixed rate and, but for
 * read=0, reads at the same time: the time from the send to its ack, and to the moment when the consumer has it; the
 * first `skip` messages don't count. SIGTERM ends it before `count`; `samples` gets three doubles a message: when it
 * was sent, acknowledged and read, by the machine's monotonic clock, 0 for never. survive produces without pause while the broker is killed and started again: when acks were missing the longest. */
#define _GNU_SOURCE
#include "rdkafka.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { CONSUME_BATCH = 10000, PATIENCE_S = 60 };

static int arg_count;
static char **args;
static _Atomic long acked, failed;              /* flush and the thread that polls may both be told of an ack */
static int first_error;
static double last_ack, gap_start, gap_end;     /* the longest time without an ack */

struct sample { double sent, acked, seen; };
struct mark { double run; long index; };        /* what a message of latency begins with */
static double run;
static struct sample *samples;                  /* only for latency: one a message */
static volatile long sample_count, seen_count;
static volatile bool consuming, stopping, ended;

static const char *text(const char *name, const char *otherwise) {
    size_t len = strlen(name);
    for (int i = 2; i < arg_count; i++)
        if (!strncmp(args[i], name, len) && args[i][len] == '=') return args[i] + len + 1;
    if (!otherwise) fprintf(stderr, "load_rdkafka: %s= is missing\n", name), exit(2);
    return otherwise;
}

static double number(const char *name, const char *otherwise) { return atof(text(name, otherwise)); }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static double own_cpu_s(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

static void on_ack(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    double t = now();
    if (message->err) {
        failed++;
        first_error = first_error ? first_error : message->err;
        return;
    }
    acked++;
    if (message->_private) ((struct sample *)message->_private)->acked = t;
    if (last_ack && t - last_ack > gap_end - gap_start) gap_start = last_ack, gap_end = t;
    last_ack = t;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error)) fprintf(stderr, "%s\n", error), exit(2);
}

static rd_kafka_t *client(int type, rd_kafka_conf_t *conf) {
    char error[512];
    set(conf, "bootstrap.servers", text("at", NULL));
    set(conf, "log_level", "2");
    rd_kafka_t *made = rd_kafka_new(type, conf, error, sizeof error);
    if (!made) fprintf(stderr, "%s\n", error), exit(2);
    return made;
}

static rd_kafka_t *producer(const char *linger_ms) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "acks", text("acks", "all"));
    set(conf, "linger.ms", linger_ms);
    set(conf, "batch.size", "1000000");
    set(conf, "batch.num.messages", text("batch", "1000000"));
    set(conf, "queue.buffering.max.messages", text("queue", "2000000"));
    set(conf, "queue.buffering.max.kbytes", "400000");
    set(conf, "reconnect.backoff.ms", "10");
    set(conf, "reconnect.backoff.max.ms", "50");
    set(conf, "retry.backoff.ms", "10");
    set(conf, "retry.backoff.max.ms", "50");
    rd_kafka_conf_set_dr_msg_cb(conf, on_ack);
    return client(RD_KAFKA_PRODUCER, conf);
}

static rd_kafka_queue_t *consumer(int partitions, rd_kafka_topic_t **topic) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "check.crcs", "false");
    set(conf, "fetch.wait.max.ms", "500");
    set(conf, "fetch.message.max.bytes", "1048576");
    set(conf, "queued.min.messages", "1000000");
    set(conf, "queued.max.messages.kbytes", "400000");
    rd_kafka_t *made = client(RD_KAFKA_CONSUMER, conf);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(made);
    *topic = rd_kafka_topic_new(made, text("topic", NULL), NULL);
    int from = number("from", "0");
    for (int i = 0; i < partitions; i++) rd_kafka_consume_start_queue(*topic, from + i, 0, queue);
    return queue;
}

static void send_one(rd_kafka_t *producer, rd_kafka_topic_t *topic, int partition, void *payload, size_t size,
                     struct sample *mark) {
    while (rd_kafka_produce(topic, partition, RD_KAFKA_MSG_F_COPY, payload, size, NULL, 0, mark) == -1) {
        int error = rd_kafka_last_error();
        if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL) fprintf(stderr, "produce: %s\n", rd_kafka_err2str(error)), exit(1);
        rd_kafka_poll(producer, 2);
    }
}

static void print_outcome(long messages, long missing, double seconds) {
    printf("\"messages\": %ld, \"failed\": %ld, \"missing\": %ld, ", messages, failed, missing);
    printf("\"seconds\": %.4f, \"client_cpu_s\": %.3f, ", seconds, own_cpu_s());
    printf("\"error\": \"%s\"}\n", first_error ? rd_kafka_err2str(first_error) : "");
}

/* Text that compresses about as well as JSON does; nothing here compresses it, but a broker might. */
static char *payload_of(size_t size) {
    char *payload = malloc(size);
    srand(1);
    for (size_t i = 0; i < size; i++)
        payload[i] = i % 3 ? "{\"id\":,name}value0123456789"[rand() % 26] : 32 + rand() % 90;
    return payload;
}

static int produce(bool survive) {
    rd_kafka_t *made = producer("5");
    rd_kafka_topic_t *topic = rd_kafka_topic_new(made, text("topic", NULL), NULL);
    int partitions = number("partitions", "1");
    size_t size = number("size", NULL);
    long count = survive ? 1L << 60 : (long)number("count", NULL), sent = 0;
    char *payload = payload_of(size);
    double begin = now(), until = begin + number("seconds", "60");
    for (; sent < count && now() < until; sent += 64) {         /* 64 in a row to a partition */
        for (int i = 0; i < 64; i++) send_one(made, topic, (sent >> 6) % partitions, payload, size, NULL);
        if (!(sent & 1023)) rd_kafka_poll(made, 0);
    }
    rd_kafka_flush(made, PATIENCE_S * 1000);
    double seconds = now() - begin;
    printf("{\"gap_start\": %.6f, \"gap_end\": %.6f, ", gap_start, gap_end);
    print_outcome(acked, sent - acked - failed, seconds);
    return 0;
}

static int consume(void) {
    static rd_kafka_message_t *batch[CONSUME_BATCH];
    rd_kafka_topic_t *topic;
    long count = number("count", NULL), got = 0;
    double begin = now(), patience = number("patience", "60"), bytes = 0;
    rd_kafka_queue_t *queue = consumer(number("partitions", "1"), &topic);
    while (got < count && now() - begin < patience) {
        ssize_t n = rd_kafka_consume_batch_queue(queue, 200, batch, CONSUME_BATCH);
        for (ssize_t i = 0; i < n; i++) {
            if (!batch[i]->err) got++, bytes += batch[i]->len;
            else if (batch[i]->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) first_error = batch[i]->err;
            rd_kafka_message_destroy(batch[i]);
        }
    }
    double seconds = now() - begin;
    printf("{\"bytes\": %.0f, ", bytes);
    print_outcome(got, got < count ? count - got : 0, seconds);
    return 0;
}

static void *read_while_sending(void *unused) {
    rd_kafka_topic_t *topic;
    rd_kafka_queue_t *queue = consumer(number("partitions", "1"), &topic);
    double begin = now();
    consuming = true;
    while (seen_count < sample_count && now() - begin < PATIENCE_S) {
        rd_kafka_message_t *message;
        if (rd_kafka_consume_batch_queue(queue, 200, &message, 1) != 1) continue;
        struct mark mark = {0};
        if (!message->err && message->len >= sizeof mark) memcpy(&mark, message->payload, sizeof mark);
        if (mark.run == run) samples[mark.index].seen = now(), seen_count++;    /* others were there before */
        rd_kafka_message_destroy(message);
    }
    return unused;
}

static void *poll_for_acks(void *producer) {
    while (!stopping) rd_kafka_poll(producer, 100);
    return NULL;
}

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void print_percentiles(const char *name, double *values, long count) {
    qsort(values, count, sizeof *values, ascending);
    for (int i = 0; count && i < 4; i++) {
        static const char *const names[] = {"p50", "p99", "p999", "max"};
        static const double shares[] = {.5, .99, .999, 1};
        long at = count * shares[i];
        printf("\"%s_%s_us\": %.1f, ", name, names[i], values[at < count ? at : count - 1] * 1e6);
    }
}

static void print_latencies(long skip) {
    double *acks = calloc(sample_count + 1, sizeof *acks), *ends = calloc(sample_count + 1, sizeof *ends);
    long ack_count = 0, end_count = 0;
    for (long i = skip; i < sample_count; i++) {
        if (samples[i].acked) acks[ack_count++] = samples[i].acked - samples[i].sent;
        if (samples[i].seen) ends[end_count++] = samples[i].seen - samples[i].sent;
    }
    print_percentiles("ack", acks, ack_count);
    print_percentiles("end", ends, end_count);
}

/* A producer that knows its topic's partitions, so that asking for them is none of what is measured. */
static rd_kafka_t *informed_producer(rd_kafka_topic_t **topic) {
    rd_kafka_t *made = producer("0");
    const void *known;
    *topic = rd_kafka_topic_new(made, text("topic", NULL), NULL);
    int error = rd_kafka_metadata(made, 0, *topic, &known, PATIENCE_S * 1000);
    if (error) fprintf(stderr, "metadata: %s\n", rd_kafka_err2str(error)), exit(1);
    rd_kafka_metadata_destroy(known);
    return made;
}

static int first(void) {
    pthread_t poller;
    rd_kafka_topic_t *topic;
    char payload[100] = {0};
    sample_count = number("partitions", NULL);
    samples = calloc(sample_count, sizeof *samples);
    rd_kafka_t *made = informed_producer(&topic);
    pthread_create(&poller, NULL, poll_for_acks, made);
    double begin = now();
    for (long i = 0; i < sample_count; i++) {
        samples[i].sent = now();
        send_one(made, topic, i, payload, sizeof payload, &samples[i]);
    }
    rd_kafka_flush(made, PATIENCE_S * 1000);
    stopping = true;
    pthread_join(poller, NULL);
    printf("{\"begin\": %.6f, \"end\": %.6f, ", begin, last_ack);
    print_latencies(0);
    print_outcome(acked, sample_count - acked - failed, last_ack - begin);
    return 0;
}

static void end_early(int signal) { (void)signal, ended = true; }

static void write_samples(void) {
    FILE *file = fopen(text("samples", NULL), "wb");
    if (!file || fwrite(samples, sizeof *samples, sample_count, file) != (size_t)sample_count || fclose(file))
        perror("samples"), exit(1);
}

static int latency(void) {
    sample_count = number("count", NULL);
    int partitions = number("partitions", "1"), size = number("size", "100");
    double rate = number("rate", "1000");
    bool reads = number("read", "1");
    samples = calloc(sample_count, sizeof *samples);
    char *payload = calloc(1, size);
    pthread_t reader, poller;
    signal(SIGTERM, end_early);
    run = now();
    if (reads) {
        pthread_create(&reader, NULL, read_while_sending, NULL);
        struct timespec pause = {.tv_nsec = 700000000};
        while (!consuming) sched_yield();
        nanosleep(&pause, NULL);                                /* until its fetches wait at the broker */
    }
    rd_kafka_topic_t *topic;
    rd_kafka_t *made = informed_producer(&topic);
    pthread_create(&poller, NULL, poll_for_acks, made);
    double begin = now();
    for (long i = 0; i < sample_count; i++) {
        if (ended) { sample_count = i; break; }
        double due = begin + i / rate;
        struct timespec at = {.tv_sec = due, .tv_nsec = (due - (long)due) * 1e9};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
        memcpy(payload, &(struct mark){run, i}, sizeof(struct mark));
        samples[i].sent = now();
        send_one(made, topic, i % partitions, payload, size, &samples[i]);
    }
    rd_kafka_flush(made, PATIENCE_S * 1000);
    stopping = true;
    pthread_join(poller, NULL);
    if (reads) pthread_join(reader, NULL);
    double seconds = now() - begin;
    if (*text("samples", "")) write_samples();
    printf("{");
    print_latencies(number("skip", "0"));
    print_outcome(acked, sample_count - (reads ? seen_count : acked + failed), seconds);
    return 0;
}

int main(int argc, char **argv) {
    arg_count = argc, args = argv;
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "produce")) return produce(false);
    if (!strcmp(what, "survive")) return produce(true);
    if (!strcmp(what, "consume")) return consume();
    if (!strcmp(what, "first")) return first();
    if (!strcmp(what, "latency")) return latency();
    fprintf(stderr, "usage: load_rdkafka produce|survive|consume|first|latency at=HOST:PORT topic=NAME ...\n");
    return 2;
}
