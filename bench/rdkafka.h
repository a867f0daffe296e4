/* The part of librdkafka's public interface that the load uses, so that no development package is needed: the library
 * itself comes with confluent-kafka's wheel. Types that are only passed on stay incomplete. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;

typedef struct {
    int err;                    /* 0: none */
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;             /* what was given to rd_kafka_produce */
} rd_kafka_message_t;

enum { RD_KAFKA_PRODUCER, RD_KAFKA_CONSUMER };
enum { RD_KAFKA_MSG_F_COPY = 2 };
enum { RD_KAFKA_RESP_ERR__QUEUE_FULL = -184, RD_KAFKA_RESP_ERR__PARTITION_EOF = -191 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *name, const char *value, char *error, size_t error_size);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *opaque));
rd_kafka_t *rd_kafka_new(int type, rd_kafka_conf_t *, char *error, size_t error_size);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *name, rd_kafka_topic_conf_t *);
int rd_kafka_produce(rd_kafka_topic_t *, int32_t partition, int flags, void *payload, size_t len, const void *key,
                     size_t key_len, void *opaque);
int rd_kafka_poll(rd_kafka_t *, int timeout_ms);
int rd_kafka_flush(rd_kafka_t *, int timeout_ms);
int rd_kafka_last_error(void);
const char *rd_kafka_err2str(int error);
int rd_kafka_metadata(rd_kafka_t *, int all_topics, rd_kafka_topic_t *, const void **metadata, int timeout_ms);
void rd_kafka_metadata_destroy(const void *metadata);
rd_kafka_queue_t *rd_kafka_queue_new(rd_kafka_t *);
int rd_kafka_consume_start_queue(rd_kafka_topic_t *, int32_t partition, int64_t offset, rd_kafka_queue_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int timeout_ms, rd_kafka_message_t **, size_t size);
void rd_kafka_message_destroy(rd_kafka_message_t *);

/* Transactions: an error is NULL where all is well. */
typedef struct rd_kafka_error_s rd_kafka_error_t;
rd_kafka_error_t *rd_kafka_init_transactions(rd_kafka_t *client, int timeout_ms);
rd_kafka_error_t *rd_kafka_begin_transaction(rd_kafka_t *client);
rd_kafka_error_t *rd_kafka_commit_transaction(rd_kafka_t *client, int timeout_ms);
const char *rd_kafka_error_string(const rd_kafka_error_t *error);
