/* The floor: the least that any broker has to do for the same bytes, in one thread on epoll.
 *
 * Produce: recv, CRC-32C, offset patched in place, write, ack. Fetch: sendfile, waiting for data as a broker would.
 * It has one topic, whatever its name, takes one partition in a Produce and answers a Fetch from the first partition
 * that has data, checks the CRC and nothing else, and speaks the versions that bench/requests.py puts into the
 * ready-made answers: Produce 10, Fetch 16, Metadata 12, ApiVersions 3. At most 200 lines.
 *
 *   floor PORT FOLDER < the answers to ApiVersions and Metadata        prints "ready" when it listens */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <time.h>
#include <unistd.h>

enum { PARTITIONS = 8, FILES_MAX = 256, READ_BYTES = 1 << 18, FRAME_MAX = 1 << 22, OUT_BYTES = 1 << 16, LANE = 4096 };
static const uint64_t SHIFT_LANE = 0x82f89c77, SHIFT_TWO = 0x54a86326;  /* x^(8n-33) mod P: shifts a CRC by n bytes */

struct batch { int64_t offset, pos; };
struct partition { int fd; int64_t next_offset, size; struct batch *batches; size_t count, room; };
struct records { int fd; off_t pos; size_t len; };              /* part of a log */
struct connection {                                             /* indexed by its file descriptor */
    uint8_t out[OUT_BYTES];
    size_t in_len, out_len, sent, cut;
    struct records records;                                     /* to be sent when `cut` bytes of `out` have left */
    double deadline;                                            /* set while the first request in `in` waits for data */
    uint32_t events;
};

static struct partition partitions[PARTITIONS];
static struct connection connections[FILES_MAX];
static uint8_t in[FILES_MAX][FRAME_MAX], ready_made[1 << 14];
static int poller, top_fd;
static bool appended;

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static uint64_t get(const uint8_t *p, int n) { uint64_t v; memcpy(&v, p, 8); return be64toh(v) >> (64 - 8 * n); }
static uint64_t get_varint(const uint8_t **p) {
    uint64_t v = **p & 127;
    for (int shift = 7; *(*p)++ & 128; shift += 7) v |= (uint64_t)(**p & 127) << shift;
    return v;
}
static void put(struct connection *c, const void *p, size_t n) { memcpy(c->out + c->out_len, p, n), c->out_len += n; }
static void put_int(struct connection *c, int n, uint64_t v) { v = htobe64(v << (64 - 8 * n)), put(c, &v, n); }
static void put_varint(struct connection *c, uint64_t v) {
    for (; v > 127; v >>= 7) put_int(c, 1, v | 128);
    put_int(c, 1, v);
}
static uint64_t shifted(uint64_t crc, uint64_t factor) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(crc), _mm_cvtsi64_si128(factor), 0);
    return _mm_crc32_u64(0, _mm_cvtsi128_si64(product));
}
static uint32_t crc32c(const uint8_t *p, size_t n) {            /* in three lanes: the instruction takes three cycles */
    uint64_t a = 0xffffffff, b, c, word[3];
    for (; n >= 3 * LANE; p += 3 * LANE, n -= 3 * LANE) {
        b = c = 0;
        for (size_t i = 0; i < LANE; i += 8) {
            for (int lane = 0; lane < 3; lane++) memcpy(&word[lane], p + i + lane * LANE, 8);
            a = _mm_crc32_u64(a, word[0]), b = _mm_crc32_u64(b, word[1]), c = _mm_crc32_u64(c, word[2]);
        }
        a = shifted(a, SHIFT_TWO) ^ shifted(b, SHIFT_LANE) ^ c;
    }
    for (; n >= 8; p += 8, n -= 8) memcpy(word, p, 8), a = _mm_crc32_u64(a, word[0]);
    while (n--) a = _mm_crc32_u8(a, *p++);
    return ~(uint32_t)a;
}

static int append(struct partition *q, uint8_t *batch, size_t len) {
    if (crc32c(batch + 21, len - 21) != get(batch + 17, 4)) return 2;
    uint64_t base = htobe64(q->next_offset);
    memcpy(batch, &base, 8);
    if (write(q->fd, batch, len) != (ssize_t)len) perror("write"), exit(1);
    if (q->count == q->room) q->batches = realloc(q->batches, (q->room = q->room * 2 + 1024) * sizeof *q->batches);
    q->batches[q->count++] = (struct batch){q->next_offset, q->size};
    q->size += len;
    q->next_offset += get(batch + 23, 4) + 1;
    return 0;
}
static void produce(struct connection *c, const uint8_t *p) {
    const uint8_t *topic = p += 8;                              /* after transactional id, acks, timeout, "1 topic" */
    uint64_t name = get_varint(&p), index = get(p += name, 4);  /* after the name and "1 partition" */
    uint64_t base = partitions[index].next_offset;
    put_int(c, 1, 2), put(c, topic, (p += 4) - topic);          /* back they go: name, "1 partition", index */
    uint64_t len = get_varint(&p) - 1;
    put_int(c, 2, append(&partitions[index], (uint8_t *)p, len));
    put_int(c, 8, base), put_int(c, 8, -1), put_int(c, 8, 0), put(c, "\1\0\0\0\0\0\0\0\0", 9);
    appended = true;
}
static struct records find(struct partition *q, int64_t offset, size_t limit) {
    size_t low = 0, high = q->count, middle;
    if (offset >= q->next_offset) return (struct records){0};
    while ((middle = (low + high) / 2) > low) *(q->batches[middle].offset <= offset ? &low : &high) = middle;
    size_t pos = q->batches[low].pos, len = q->size - pos, first = high < q->count ? q->batches[high].pos - pos : len;
    return (struct records){q->fd, pos, len <= limit ? len : limit > first ? limit : first};
}
static bool fetch(struct connection *c, const uint8_t *p) {     /* false: nothing there yet, so it waits */
    double wait = get(p, 4) / 1e3;
    struct records none = {0}, *found = &c->records;
    put(c, "\0\0\0\0\0\0\0\0\0\0\2", 11), put(c, p += 22, 16);  /* throttle, error, session, "1 topic", its id */
    p += 16;
    uint64_t count = get_varint(&p);
    for (put_varint(c, count); --count; p += 33) {
        struct partition *q = &partitions[get(p, 4)];
        struct records records = found->len ? none : find(q, get(p + 8, 8), get(p + 28, 4));
        put(c, p, 4), put_int(c, 2, 0), put_int(c, 8, q->next_offset), put_int(c, 8, q->next_offset);
        put_int(c, 8, 0), put_int(c, 1, 0), put_int(c, 4, -1), put_varint(c, records.len + 1);
        if (records.len) *found = records, c->cut = c->out_len;
        put_int(c, 1, 0);
    }
    put(c, "\0\0", 2);
    if (!c->deadline) c->deadline = now() + wait;
    return found->len || now() >= c->deadline;
}

static bool answer(struct connection *c, const uint8_t *frame) {
    int key = get(frame, 2);
    size_t begin = c->out_len;
    const uint8_t *ready = ready_made + (key == 3 ? get(ready_made, 4) + 4 : 0);
    if (key == 18 || key == 3) put(c, ready, get(ready, 4) + 4);
    else put(c, "\0\0\0\0\0\0\0\0\0", 9);                       /* size, correlation id, tags */
    if (key == 0) produce(c, frame + 11 + get(frame + 8, 2));
    if (key == 1 && !fetch(c, frame + 11 + get(frame + 8, 2))) { c->out_len = begin; return false; }
    uint32_t size = htobe32(c->out_len - begin - 4 + c->records.len);
    memcpy(c->out + begin, &size, 4), memcpy(c->out + begin + 4, frame + 4, 4);
    c->deadline = 0;
    return true;
}
static bool flush(int fd, struct connection *c) {               /* true when everything has left */
    while (c->sent < c->out_len) {
        size_t stop = c->records.len ? c->cut : c->out_len;
        int flags = MSG_NOSIGNAL | (c->records.len ? MSG_MORE : 0);
        ssize_t n = c->sent < stop ? send(fd, c->out + c->sent, stop - c->sent, flags)
                                   : sendfile(fd, c->records.fd, &c->records.pos, c->records.len);
        if (n <= 0) return false;
        *(c->sent < stop ? &c->sent : &c->records.len) += c->sent < stop ? n : -n;
    }
    c->sent = c->out_len = 0;
    return true;
}
static void serve(int fd, struct connection *c) {
    bool flushed = flush(fd, c);
    for (size_t pos = 1; flushed && pos; flushed = flush(fd, c)) {
        for (pos = 0; c->in_len - pos >= 4 && !c->records.len && c->out_len < OUT_BYTES / 2;) {
            size_t size = get(in[fd] + pos, 4) + 4;
            if (c->in_len - pos < size || !answer(c, in[fd] + pos + 4)) break;
            pos += size;
        }
        if (pos) memmove(in[fd], in[fd] + pos, c->in_len -= pos);
    }
    struct epoll_event event = {.events = flushed ? EPOLLIN : EPOLLOUT, .data.fd = fd};
    if (event.events != c->events) epoll_ctl(poller, EPOLL_CTL_MOD, fd, &event), c->events = event.events;
}
static void wake(int fd, struct connection *c) {
    size_t room = FRAME_MAX - c->in_len;
    ssize_t n = recv(fd, in[fd] + c->in_len, room < READ_BYTES ? room : READ_BYTES, 0);
    c->in_len += n > 0 ? n : 0;
    if (n > 0 || (n < 0 && errno == EAGAIN)) serve(fd, c);
    else close(fd), c->deadline = 0;
}
static void welcome(int listener) {
    int one = 1, send_bytes = 100 << 10, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    if (fd < 0 || fd >= FILES_MAX) { close(fd); return; }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);  /* Kafka's: half the CPU */
    connections[fd] = (struct connection){.events = EPOLLIN};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN, .data.fd = fd});
    top_fd = fd > top_fd ? fd : top_fd;
}

int main(int argc, char **argv) {
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (argc != 3 || chdir(argv[2]) || read(0, ready_made, sizeof ready_made) < 8) return perror("start"), 1;
    for (char i = 0, path[] = "0.log"; i < PARTITIONS; i++, path[0]++)
        if ((partitions[(int)i].fd = open(path, O_RDWR | O_CREAT | O_APPEND, 0644)) < 0) return perror(path), 1;
    at.sin_port = htons(atoi(argv[1]));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 512)) return perror("listen"), 1;
    poller = epoll_create1(0);
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &(struct epoll_event){.events = EPOLLIN, .data.fd = listener});
    puts("ready"), fflush(stdout);
    for (struct epoll_event events[64];;) {
        int count = epoll_wait(poller, events, 64, 50);
        for (int i = 0; i < count; i++)
            if (events[i].data.fd == listener) welcome(listener);
            else wake(events[i].data.fd, &connections[events[i].data.fd]);
        if (count && !appended) continue;                       /* who waits wakes on data, or when it is time */
        appended = false;
        for (int fd = 0; fd <= top_fd; fd++) if (connections[fd].deadline) serve(fd, &connections[fd]);
    }
}
