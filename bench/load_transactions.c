/* Producing in transactions through librdkafka; one JSON object on stdout.
 *
 *   load_transactions at=HOST:PORT topic=T partitions=N size=BYTES seconds=S [each=RECORDS] [each_ms=MS]
 *
 * Sends for `seconds`, as fast as it can, and commits after `each` records or every `each_ms`. With neither, the producer
 * is idempotent only: what transactions are measured against. What isn't committed at the end doesn't count. */
#define _GNU_SOURCE
#include "rdkafka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATIENCE_MS = 60000, IN_A_ROW = 64 };

static int arg_count;
static char **args;
static long acked, failed;
static double *commits;

static const char *text(const char *name, const char *otherwise) {
    size_t len = strlen(name);
    for (int i = 1; i < arg_count; i++)
        if (!strncmp(args[i], name, len) && args[i][len] == '=') return args[i] + len + 1;
    if (!otherwise) fprintf(stderr, "load_transactions: %s= is missing\n", name), exit(2);
    return otherwise;
}

static double number(const char *name, const char *otherwise) { return atof(text(name, otherwise)); }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void on_ack(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) failed++;
    else acked++;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error)) fprintf(stderr, "%s\n", error), exit(2);
}

static void check(rd_kafka_error_t *error, const char *what) {
    if (error) fprintf(stderr, "%s: %s\n", what, rd_kafka_error_string(error)), exit(1);
}

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    arg_count = argc, args = argv;
    long each = number("each", "0"), sent = 0, committed = 0, count = 0, room = 1 << 20;
    double each_s = number("each_ms", "0") / 1000, seconds = number("seconds", NULL);
    int transactional = each || each_s > 0, partitions = number("partitions", "1");
    size_t size = number("size", NULL);
    char error[512], *payload = malloc(size), name[64];
    memset(payload, 'x', size);
    commits = calloc(room, sizeof *commits);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", text("at", NULL));
    set(conf, "log_level", "2");
    set(conf, "enable.idempotence", "true");
    set(conf, "linger.ms", "5");
    set(conf, "batch.size", "1000000");
    set(conf, "batch.num.messages", "1000000");
    set(conf, "queue.buffering.max.messages", "500000");
    snprintf(name, sizeof name, "bench-%ld-%.0f", each, now() * 1e6);
    if (transactional) set(conf, "transactional.id", name);
    rd_kafka_conf_set_dr_msg_cb(conf, on_ack);
    rd_kafka_t *made = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof error);
    if (!made) fprintf(stderr, "%s\n", error), exit(2);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(made, text("topic", NULL), NULL);
    if (transactional) check(rd_kafka_init_transactions(made, PATIENCE_MS), "init_transactions");
    double begin = now(), until = begin + seconds, since = begin, t = begin;
    if (transactional) check(rd_kafka_begin_transaction(made), "begin_transaction");
    while (t < until) {
        int row = each && each - (sent - committed) < IN_A_ROW ? each - (sent - committed) : IN_A_ROW;
        for (int i = 0; i < row; i++, sent++)
            while (rd_kafka_produce(topic, (sent / IN_A_ROW) % partitions, RD_KAFKA_MSG_F_COPY, payload, size, NULL, 0, NULL) == -1)
                rd_kafka_poll(made, 1);
        rd_kafka_poll(made, 0);
        t = now();
        if (transactional && ((each && sent - committed >= each) || (each_s > 0 && t - since >= each_s))) {
            check(rd_kafka_commit_transaction(made, PATIENCE_MS), "commit_transaction");
            committed = sent, since = now();
            if (count < room) commits[count++] = since - t;
            check(rd_kafka_begin_transaction(made), "begin_transaction");
            t = since;
        }
    }
    double end = committed ? since : now();
    if (!transactional) rd_kafka_flush(made, PATIENCE_MS), end = now(), committed = acked;
    qsort(commits, count, sizeof *commits, ascending);
    printf("{\"messages\": %ld, \"failed\": %ld, \"missing\": 0, \"seconds\": %.4f, \"transactions\": %ld, ", committed, failed,
           end - begin, count);
    printf("\"commit_p50_us\": %.1f, \"commit_p99_us\": %.1f, \"error\": \"\"}\n", count ? commits[count / 2] * 1e6 : 0,
           count ? commits[count * 99 / 100] * 1e6 : 0);
    return 0;
}
