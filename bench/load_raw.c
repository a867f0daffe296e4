/* Load of one raw request, sent again and again over many connections; one JSON object on stdout.
 *
 *   load_raw PORT REQUEST_FILE connections=N depth=N count=N seconds=S error_at=POS [offset_at=POS step=N modulo=N]
 *   load_raw PORT REQUEST_FILE rate=PER_SECOND count=N skip=N error_at=POS partition_at=POS partitions=N
 *
 * Every connection keeps `depth` requests under way until `count` were sent or `seconds` have passed, then waits for
 * the rest. The two bytes at `error_at` of every answer (counted from its size field) are an error code and must be 0.
 * With offset_at, the 8 bytes there are a fetch offset: it goes up by `step`, modulo `modulo`, from request to request.
 * Large answers are thrown away inside the kernel (MSG_TRUNC): the client should cost as little as it can.
 * With rate, one connection sends at that rate, however many answers are open; the 4 bytes at `partition_at` are the
 * partition: each request is for the next one. The time from a send to its answer is told, of all but the first `skip`. */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_BYTES = 128, TRUNCATE_ABOVE = 4096, STALL_MS = 10000, REQUEST_BYTES_MAX = 8 << 20, READ_BYTES = 1 << 18 };

struct connection {
    int fd;
    size_t to_send, send_pos;       /* bytes still to be sent, and where in the endless row of requests they begin */
    uint8_t head[HEAD_BYTES];       /* the beginning of the answer that is being read */
    size_t head_len, rest;          /* how much of it is there; how much of the answer is left after it */
    uint64_t offset;
    bool wants_write;
};

static int arg_count;
static char **args;
static uint8_t *row;                /* the request, repeated up to some 64 KB so that many leave in one send */
static size_t request_len, row_len, error_at, head_need, offset_at;
static uint64_t step, modulo, sent, done, count_max, bytes_in;
static int poller, first_error;

static double number(const char *name, double otherwise) {
    size_t len = strlen(name);
    for (int i = 3; i < arg_count; i++)
        if (!strncmp(args[i], name, len) && args[i][len] == '=') return atof(args[i] + len + 1);
    return otherwise;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void watch(struct connection *c, int how, bool writing) {
    struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poller, how, c->fd, &event);
    c->wants_write = writing;
}

static void push(struct connection *c) {
    while (c->to_send) {
        size_t len = row_len - c->send_pos < c->to_send ? row_len - c->send_pos : c->to_send;
        ssize_t n = send(c->fd, row + c->send_pos, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            if (!c->wants_write) watch(c, EPOLL_CTL_MOD, true);
            return;
        }
        if (n < 0) fail("send");
        c->send_pos = (c->send_pos + n) % row_len;
        c->to_send -= n;
    }
    if (c->wants_write) watch(c, EPOLL_CTL_MOD, false);
}

static void ask(struct connection *c, int requests) {
    for (; requests && sent < count_max; requests--, sent++) {
        if (!offset_at) {
            c->to_send += request_len;
            continue;
        }
        uint64_t offset = htobe64(c->offset);
        memcpy(row + offset_at, &offset, sizeof offset);
        c->offset = (c->offset + step) % modulo;
        if (send(c->fd, row, request_len, MSG_NOSIGNAL) != (ssize_t)request_len) fail("send of a fetch");
    }
    push(c);
}

/* Walk over bytes that came; how many answers they finished. */
static int take(struct connection *c, const uint8_t *p, size_t len) {
    int finished = 0;
    for (size_t n; len; p += n, len -= n) {
        if (c->head_len < head_need) {
            n = head_need - c->head_len < len ? head_need - c->head_len : len;
            memcpy(c->head + c->head_len, p, n);
            c->head_len += n;
            if (c->head_len < head_need) continue;
            uint32_t size;
            int16_t error;
            memcpy(&size, c->head, 4), memcpy(&error, c->head + error_at, 2);
            c->rest = be32toh(size) + 4 - head_need;
            if (error && !first_error) first_error = (int16_t)be16toh(error);
        } else {
            n = c->rest < len ? c->rest : len;
            c->rest -= n;
        }
        if (!c->rest) c->head_len = 0, finished++;
    }
    return finished;
}

static int receive(struct connection *c) {
    static uint8_t buffer[READ_BYTES];
    bool skip = c->head_len == head_need && c->rest >= TRUNCATE_ABOVE;
    size_t want = skip ? c->rest : offset_at && c->head_len < head_need ? head_need - c->head_len : sizeof buffer;
    ssize_t n = recv(c->fd, buffer, want, skip ? MSG_TRUNC : 0);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) fprintf(stderr, "load_raw: the broker closed a connection\n"), exit(1);
    bytes_in += n;
    if (!skip) return take(c, buffer, n);
    c->rest -= n;
    if (c->rest) return 0;
    c->head_len = 0;
    return 1;
}

static void read_request(const char *path) {
    int file = open(path, O_RDONLY);
    uint8_t *request = malloc(REQUEST_BYTES_MAX);
    ssize_t n = file < 0 ? -1 : read(file, request, REQUEST_BYTES_MAX);
    if (n <= 0) fail(path);
    request_len = n;
    size_t times = offset_at || request_len > 65536 ? 1 : 65536 / request_len;
    row = malloc(row_len = times * request_len);
    for (size_t i = 0; i < times; i++) memcpy(row + i * request_len, request, request_len);
    free(request);
}

static void connect_to(struct connection *c, int port) {
    int one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (void *)&at, sizeof at)) fail("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    watch(c, EPOLL_CTL_ADD, false);
}

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void print_latencies(double *took, uint64_t skip, double begin) {
    static const char *const names[] = {"p50", "p99", "p999", "max"};
    static const double shares[] = {.5, .99, .999, 1};
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    uint64_t count = done - skip;
    qsort(took + skip, count, sizeof *took, ascending);
    printf("{");
    for (int i = 0; i < 4; i++) {
        uint64_t at = count * shares[i];
        printf("\"ack_%s_us\": %.1f, ", names[i], took[skip + (at < count ? at : count - 1)] * 1e6);
    }
    printf("\"requests\": %lu, \"seconds\": %.4f, \"client_cpu_s\": %.3f, \"error\": %d}\n", done, now() - begin, cpu,
           first_error);
}

/* Answers leave a connection in the order of its requests: the next one is of the oldest that is open. */
static int at_a_rate(struct connection *c, double rate, uint64_t skip, size_t partition_at, uint32_t partitions) {
    if (skip >= count_max || !partition_at) return fprintf(stderr, "load_raw: rate needs count > skip\n"), 2;
    double *took = calloc(count_max, sizeof *took), begin = now();
    while (done < count_max) {
        double t = now(), due = begin + sent / rate;
        if (sent < count_max && t >= due) {
            uint32_t partition = htobe32(sent % partitions);
            memcpy(row + partition_at, &partition, sizeof partition);
            took[sent++] = -now();
            if (send(c->fd, row, request_len, MSG_NOSIGNAL) != (ssize_t)request_len) fail("send");
            continue;
        }
        double wait = sent < count_max ? due - t : STALL_MS / 1e3;
        struct epoll_event event;
        struct timespec until = {.tv_sec = wait, .tv_nsec = (wait - (long)wait) * 1e9};
        int ready = epoll_pwait2(poller, &event, 1, &until, NULL);
        if (ready < 0) fail("epoll_pwait2");
        if (!ready && sent == count_max) return fprintf(stderr, "load_raw: no answer for %d ms\n", STALL_MS), 1;
        int finished = ready ? receive(c) : 0;
        for (t = now(); finished--;) took[done++] += t;
    }
    print_latencies(took, skip, begin);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: load_raw PORT REQUEST_FILE connections=N depth=N count=N ...\n"), 2;
    arg_count = argc, args = argv;
    int connections = number("connections", 1), depth = number("depth", 1);
    double seconds_max = number("seconds", 10);
    count_max = number("count", 1e18), error_at = number("error_at", 0), offset_at = number("offset_at", 0);
    step = number("step", 0), modulo = number("modulo", 1), head_need = error_at + 2;
    if (error_at < 4 || head_need > HEAD_BYTES) return fprintf(stderr, "load_raw: error_at must be 4..126\n"), 2;
    read_request(argv[2]);
    poller = epoll_create1(0);
    struct connection *all = calloc(connections, sizeof *all);
    for (int i = 0; i < connections; i++) connect_to(&all[i], atoi(argv[1])), all[i].offset = step * i % modulo;
    if (number("rate", 0))
        return at_a_rate(all, number("rate", 0), number("skip", 0), number("partition_at", 0), number("partitions", 1));
    double begin = now();
    for (int i = 0; i < connections; i++) ask(&all[i], depth);
    for (struct epoll_event events[256]; done < sent;) {
        int count = epoll_wait(poller, events, 256, STALL_MS);
        if (count <= 0) return fprintf(stderr, "load_raw: no answer for %d ms, %lu open\n", STALL_MS, sent - done), 1;
        if (now() - begin > seconds_max) count_max = sent;
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) push(c);
            int finished = events[i].events & EPOLLIN ? receive(c) : 0;
            done += finished;
            if (finished) ask(c, finished);
        }
    }
    printf("{\"requests\": %lu, \"seconds\": %.4f, \"bytes_out\": %lu, \"bytes_in\": %lu, \"error\": %d}\n", done,
           now() - begin, done * request_len, bytes_in, first_error);
    return 0;
}
