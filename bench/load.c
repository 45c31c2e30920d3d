/* Open-loop load on a running issuing-api: requests leave at times that are chosen beforehand and do not depend on
 * earlier answers. A request's time counts from the moment at which it should have left. A client that waits for an
 * answer before it sends the next request leaves out exactly the moments when the server is slow ("coordinated
 * omission").
 *
 * Output: a line of JSON for each bucket of time (with --bucket), and a last line about the whole run. Times are
 * milliseconds. Leaves out: closed loops (wrk does them), TLS, and judging the answers beyond their status. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench/clients.h"
#include "bench/histogram.h"
#include "common/lib/base/base.h"

#define SECOND_NS INT64_C(1000000000)
#define QUEUE_MAX ((size_t)1 << 22)
#define OPEN_TIMEOUT_NS (10 * SECOND_NS)
#define PATH_MAX_BYTES 256

enum mode { MODE_ACCEPT, MODE_WAIT };

struct target {
    const char *token, *path;
};

struct tally {
    struct histogram times;
    uint64_t statuses[CLIENTS_STATUS_MAX], done, offered;
};

struct load {
    enum mode mode;
    struct clients clients;
    char *text;             /* owned: the file of targets */
    struct target *targets; /* owned, into text */
    size_t target_count, next_target;
    double rate, seconds, warmup, grace, bucket;
    size_t connections;
    bool is_poisson;
    int wait_s;
    const char *prefix;
    uint64_t random, sequence;
    int64_t *queue; /* owned ring of intended times without a connection so far */
    size_t queue_first, queue_count, queue_most;
    int64_t start_ns, last_ns; /* last_ns: of the last answer */
    uint64_t in_flight;
    struct tally all, part;
};

static void help(FILE *to)
{
    fputs("bench_load accept|wait --to HOST:PORT --targets FILE --rate N --seconds N [OPTIONS]: open-loop load\n"
          "\n"
          "  accept                POST /v1/card-requests with ever new keys, by the tokens of the file in turn\n"
          "  wait                  GET the paths of the file in turn, with Prefer: wait\n"
          "  --to HOST:PORT        an IPv4 address and port\n"
          "  --targets FILE        a token a line; for wait: token, space, path\n"
          "  --rate N              requests a second\n"
          "  --seconds N           how long requests leave\n"
          "  --connections N       kept connections (64)\n"
          "  --arrivals KIND       poisson or constant (poisson)\n"
          "  --warmup N            the first seconds, which do not count in the last line (0)\n"
          "  --grace N             seconds to wait for answers after the last request (10)\n"
          "  --bucket N            a line of JSON every N seconds (0 = none)\n"
          "  --wait N              seconds of Prefer: wait (30)\n"
          "  --prefix TEXT         of the keys, so that two runs do not repeat them (the process id)\n"
          "  --seed N              same seed, same times (1)\n"
          "  --help                this\n"
          "\n"
          "Exit codes: 0 done, with any answers; 1 it could not be done; 2 usage.\n",
          to);
}

/* xorshift64*: enough for times between arrivals. */
static double random_share(struct load *load)
{
    load->random ^= load->random >> 12;
    load->random ^= load->random << 25;
    load->random ^= load->random >> 27;
    return ((double)((load->random * UINT64_C(2685821657736338717)) >> 11) + 1) / 9007199254740993.0; /* never 0 */
}

static void on_answer(void *context, int64_t intended_ns, int status)
{
    struct load *load = context;
    load->last_ns = clients_now_ns();
    int64_t took_us = (load->last_ns - intended_ns) / 1000;
    load->in_flight--;
    load->part.done++;
    load->part.statuses[status]++;
    histogram_add(&load->part.times, took_us);
    if (intended_ns < load->start_ns + (int64_t)(load->warmup * 1e9))
        return;
    load->all.done++;
    load->all.statuses[status]++;
    histogram_add(&load->all.times, took_us);
}

static void send_one(struct load *load, int64_t intended_ns)
{
    const struct target *target = &load->targets[load->next_target++ % load->target_count];
    char request[CLIENTS_REQUEST_MAX];
    int length = 0;
    switch (load->mode) {
    case MODE_ACCEPT:
        length = snprintf(request, sizeof(request),
                          "POST /v1/card-requests HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n"
                          "Idempotency-Key: %s-%llu\r\nContent-Type: application/json\r\nContent-Length: 35\r\n\r\n"
                          "{\"kind\":\"new\",\"program\":\"standard\"}",
                          target->token, load->prefix, (unsigned long long)load->sequence++);
        break;
    case MODE_WAIT:
        length = snprintf(request, sizeof(request),
                          "GET %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\nPrefer: wait=%d\r\n\r\n",
                          target->path, target->token, load->wait_s);
        break;
    }
    load->in_flight++;
    clients_send(&load->clients, request, (size_t)length, intended_ns); /* fits: the parts were measured when read */
}

static void print_tally(const struct load *load, const struct tally *tally, const char *kind, double at, double seconds)
{
    uint64_t errors = 0;
    printf("{\"%s\":true,\"at_s\":%.3f,\"seconds\":%.3f,\"offered\":%llu,\"done\":%llu,\"rate\":%.1f", kind, at,
           seconds, (unsigned long long)tally->offered, (unsigned long long)tally->done, (double)tally->done / seconds);
    static const struct {
        const char *name;
        double share;
    } shares[] = {{"p50_ms", 0.5}, {"p90_ms", 0.9}, {"p99_ms", 0.99}, {"p999_ms", 0.999}};
    for (size_t i = 0; i < ARRAY_SIZE(shares); i++)
        printf(",\"%s\":%.3f", shares[i].name, (double)histogram_at(&tally->times, shares[i].share) / 1000);
    printf(",\"max_ms\":%.3f,\"waiting\":%zu,\"in_flight\":%llu,\"statuses\":{", (double)tally->times.max_us / 1000,
           load->queue_count, (unsigned long long)load->in_flight);
    const char *comma = "";
    for (int status = 0; status < CLIENTS_STATUS_MAX; status++) {
        if (!tally->statuses[status])
            continue;
        if (status < 200 || status > 299)
            errors += tally->statuses[status];
        if (status == CLIENT_RESET)
            printf("%s\"reset\":", comma);
        else if (status == CLIENT_UNREADABLE)
            printf("%s\"unreadable\":", comma);
        else
            printf("%s\"%d\":", comma, status);
        printf("%llu", (unsigned long long)tally->statuses[status]);
        comma = ",";
    }
    printf("},\"errors\":%llu", (unsigned long long)errors);
}

static void print_bucket(struct load *load, int64_t now_ns, int64_t since_ns)
{
    print_tally(load, &load->part, "bucket", (double)(now_ns - load->start_ns) / 1e9,
                (double)(now_ns - since_ns) / 1e9);
    puts("}");
    fflush(stdout);
    histogram_clear(&load->part.times);
    load->part = (struct tally){0};
}

static void print_all(const struct load *load, int64_t now_ns)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    /* To the last answer: what the server was late with must not look like speed. */
    double seconds = (double)(load->last_ns - load->start_ns) / 1e9;
    seconds = (seconds > load->seconds ? seconds : load->seconds) - load->warmup;
    print_tally(load, &load->all, "total", (double)(now_ns - load->start_ns) / 1e9, seconds);
    printf(",\"connections\":%zu,\"most_waiting\":%zu,\"cpu_s\":%.3f}\n", load->connections, load->queue_most, cpu);
}

/* Requests that are due join the queue; those of the queue that find a connection leave. */
static bool release(struct load *load, int64_t now_ns, int64_t end_ns, int64_t *next_ns)
{
    while (*next_ns <= now_ns && *next_ns < end_ns) {
        if (load->queue_count == QUEUE_MAX) {
            fprintf(stderr, "%zu requests wait for a connection: this load cannot be carried\n", load->queue_count);
            return false;
        }
        load->queue[(load->queue_first + load->queue_count++) % QUEUE_MAX] = *next_ns;
        load->part.offered++;
        if (*next_ns >= load->start_ns + (int64_t)(load->warmup * 1e9))
            load->all.offered++;
        double gap = load->is_poisson ? -log(random_share(load)) : 1;
        *next_ns += (int64_t)(gap * 1e9 / load->rate);
    }
    if (load->queue_count > load->queue_most)
        load->queue_most = load->queue_count;
    while (load->queue_count > 0 && load->clients.idle) {
        int64_t intended_ns = load->queue[load->queue_first];
        load->queue_first = (load->queue_first + 1) % QUEUE_MAX;
        load->queue_count--;
        send_one(load, intended_ns);
    }
    return true;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool run(struct load *load)
{
    load->start_ns = clients_now_ns();
    int64_t next_ns = load->start_ns, end_ns = load->start_ns + (int64_t)(load->seconds * 1e9);
    int64_t bucket_ns = load->bucket > 0 ? (int64_t)(load->bucket * 1e9) : INT64_MAX / 4;
    int64_t bucket_start_ns = load->start_ns, give_up_ns = end_ns + (int64_t)(load->grace * 1e9);
    for (;;) {
        int64_t now_ns = clients_now_ns();
        if (!release(load, now_ns, end_ns, &next_ns))
            return false;
        if (now_ns >= bucket_start_ns + bucket_ns) {
            print_bucket(load, now_ns, bucket_start_ns);
            bucket_start_ns = now_ns;
        }
        bool is_over = now_ns >= end_ns && next_ns >= end_ns;
        if (now_ns >= give_up_ns || (is_over && load->queue_count == 0 && load->in_flight == 0))
            break;
        int64_t until_ns = earlier(is_over ? give_up_ns : earlier(next_ns, end_ns), bucket_start_ns + bucket_ns);
        if (!clients_run_once(&load->clients, until_ns - now_ns))
            return false;
    }
    int64_t now_ns = clients_now_ns();
    if (load->bucket > 0)
        print_bucket(load, now_ns, bucket_start_ns);
    print_all(load, now_ns);
    return true;
}

static bool read_file(const char *name, char **ret_text)
{
    FILE *file = fopen(name, "re");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        fprintf(stderr, "%s: %s\n", name, strerror(errno));
        if (file)
            fclose(file);
        return false;
    }
    long size = ftell(file);
    rewind(file);
    char *text = size >= 0 ? malloc((size_t)size + 1) : NULL;
    bool read = text && fread(text, 1, (size_t)size, file) == (size_t)size;
    fclose(file);
    if (!read) {
        fprintf(stderr, "%s cannot be read\n", name);
        free(text);
        return false;
    }
    text[size] = '\0';
    *ret_text = text;
    return true;
}

static bool read_targets(struct load *load, const char *name)
{
    if (!read_file(name, &load->text))
        return false;
    size_t lines = 1;
    for (const char *at = load->text; *at; at++)
        lines += *at == '\n';
    load->targets = calloc(lines, sizeof(*load->targets));
    if (!load->targets) {
        perror(name);
        return false;
    }
    char *rest = load->text, *line;
    while ((line = strsep(&rest, "\n"))) {
        if (!*line)
            continue;
        char *path = line, *token = strsep(&path, " ");
        bool fits = strlen(token) <= CLIENTS_REQUEST_MAX / 2 && (!path || strlen(path) <= PATH_MAX_BYTES);
        if (!fits || (load->mode == MODE_WAIT && !path)) {
            fprintf(stderr, "%s: line %zu is no target\n", name, load->target_count + 1);
            return false;
        }
        load->targets[load->target_count++] = (struct target){.token = token, .path = path};
    }
    if (load->target_count == 0)
        fprintf(stderr, "%s is empty\n", name);
    return load->target_count > 0;
}

static bool read_number(const char *text, double least, double most, double *ret)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= least && value <= most))
        return false;
    *ret = value;
    return true;
}

static bool read_address(const char *text, struct sockaddr_in *ret)
{
    char host[INET_ADDRSTRLEN];
    const char *colon = strrchr(text, ':');
    double port;
    if (!colon || (size_t)(colon - text) >= sizeof(host) || !read_number(colon + 1, 1, 65535, &port))
        return false;
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    *ret = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    return inet_pton(AF_INET, host, &ret->sin_addr) == 1;
}

static bool read_option(struct load *load, int option, const char *value, const char **targets)
{
    double number;
    switch (option) {
    case 'T':
        return read_address(value, &load->clients.to);
    case 'f':
        *targets = value;
        return true;
    case 'r':
        return read_number(value, 0.01, 1e6, &load->rate);
    case 's':
        return read_number(value, 0.1, 86400, &load->seconds);
    case 'w':
        return read_number(value, 0, 3600, &load->warmup);
    case 'g':
        return read_number(value, 0, 3600, &load->grace);
    case 'b':
        return read_number(value, 0, 3600, &load->bucket);
    case 'p':
        load->prefix = value;
        return strlen(value) <= 100 &&
               strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == strlen(value);
    case 'a':
        load->is_poisson = strcmp(value, "poisson") == 0;
        return load->is_poisson || strcmp(value, "constant") == 0;
    case 'c':
        if (!read_number(value, 1, 60000, &number))
            return false;
        load->connections = (size_t)number;
        return true;
    case 'W':
        if (!read_number(value, 0, 3600, &number))
            return false;
        load->wait_s = (int)number;
        return true;
    case 'S':
        if (!read_number(value, 1, 1e15, &number))
            return false;
        load->random = (uint64_t)number;
        return true;
    }
    return false;
}

/* 0 = go on, else the exit code plus one. */
static int read_options(struct load *load, int count, char **words)
{
    static const struct option options[] = {{"to", 1, NULL, 'T'},       {"targets", 1, NULL, 'f'},
                                            {"rate", 1, NULL, 'r'},     {"seconds", 1, NULL, 's'},
                                            {"warmup", 1, NULL, 'w'},   {"grace", 1, NULL, 'g'},
                                            {"bucket", 1, NULL, 'b'},   {"prefix", 1, NULL, 'p'},
                                            {"wait", 1, NULL, 'W'},     {"seed", 1, NULL, 'S'},
                                            {"arrivals", 1, NULL, 'a'}, {"connections", 1, NULL, 'c'},
                                            {"help", 0, NULL, 'h'},     {0}};
    const char *targets = NULL;
    int option, index = -1;
    while ((option = getopt_long(count, words, "h", options, &index)) != -1) {
        if (option == 'h') {
            help(stdout);
            return 1;
        }
        if (option == '?')
            return 3;
        if (!read_option(load, option, optarg, &targets)) {
            fprintf(stderr, "--%s does not take: %s\n", options[index].name, optarg);
            return 3;
        }
    }
    bool is_wait = optind == count - 1 && strcmp(words[optind], "wait") == 0;
    if (optind != count - 1 || (!is_wait && strcmp(words[optind], "accept") != 0) || !targets || load->rate <= 0 ||
        load->seconds <= 0 || load->warmup >= load->seconds || load->clients.to.sin_family != AF_INET) {
        help(stderr);
        return 3;
    }
    load->mode = is_wait ? MODE_WAIT : MODE_ACCEPT;
    return read_targets(load, targets) ? 0 : 2;
}

int main(int count, char **words)
{
    static struct load load = {.connections = 64, .is_poisson = true, .grace = 10, .wait_s = 30, .random = 1};
    static char prefix[32];
    snprintf(prefix, sizeof(prefix), "load-%ld", (long)getpid());
    load.prefix = prefix;
    load.clients.on_answer = on_answer;
    load.clients.context = &load;
    int end = read_options(&load, count, words);
    if (end == 0) {
        struct rlimit limit;
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
            limit.rlim_cur = limit.rlim_max;
            (void)setrlimit(RLIMIT_NOFILE, &limit); /* ignoring: opening reports it when there are too few */
        }
        (void)prctl(PR_SET_TIMERSLACK, 1); /* ignoring: the usual 50 us late then */
        load.queue = malloc(QUEUE_MAX * sizeof(*load.queue));
        bool done = load.queue && clients_open(&load.clients, load.connections, OPEN_TIMEOUT_NS) && run(&load);
        clients_close(&load.clients);
        end = done && fflush(stdout) == 0 ? 1 : 2;
    }
    free(load.queue);
    free(load.targets);
    free(load.text);
    return end - 1;
}
