/* Time, tasks and memory of a schedule; stands in for libuv's handles, the clocks, and everything that is random. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/lib/base/backoff.h"
#include "common/lib/base/clock.h"
#include "sim.h"

#define ARENA_SIZE (64 * 1024 * 1024)
#define TASKS_MAX 16384
#define ALIGNMENT 16
#define CLASSES 512

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void __real_free(void *memory);

/* ---- memory ---- */

static char *arena;
static size_t arena_used;
static bool arena_is_on;

void sim_arena_on(bool is_on)
{
    arena_is_on = is_on;
}

static void *freed[CLASSES]; /* lists by size, linked by their first word */

static void *take(size_t size)
{
    size = size == 0 ? ALIGNMENT : (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t class = size / ALIGNMENT;
    if (class < CLASSES && freed[class]) {
        void *again = freed[class];
        freed[class] = *(void **)again;
        return again;
    }
    if (arena_used + size + ALIGNMENT > ARENA_SIZE)
        return NULL;
    char *memory = arena + arena_used;
    *(size_t *)(void *)memory = size;
    arena_used += size + ALIGNMENT;
    return memory + ALIGNMENT;
}

static bool is_in_arena(const void *memory)
{
    return arena && (const char *)memory >= arena && (const char *)memory < arena + ARENA_SIZE;
}

void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return arena_is_on ? take(size) : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    if (!arena_is_on)
        return __real_calloc(count, size);
    void *memory = take(count * size);
    if (memory)
        memset(memory, 0, count * size);
    return memory;
}

void __wrap_free(void *memory);
void __wrap_free(void *memory)
{
    if (!is_in_arena(memory)) {
        __real_free(memory);
        return;
    }
    size_t class = *(size_t *)(void *)((char *)memory - ALIGNMENT) / ALIGNMENT;
    if (class >= CLASSES)
        return;
    *(void **)memory = freed[class];
    freed[class] = memory;
}

void *__wrap_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size)
{
    if (memory && !is_in_arena(memory))
        return __real_realloc(memory, size);
    if (!memory)
        return __wrap_malloc(size);
    size_t old_size = *(size_t *)(void *)((char *)memory - ALIGNMENT);
    if (size <= old_size)
        return memory;
    void *more = take(size);
    if (more) {
        memcpy(more, memory, old_size);
        __wrap_free(memory);
    }
    return more;
}

void *sim_alloc(size_t size)
{
    void *memory = take(size);
    if (!memory)
        abort();
    return memset(memory, 0, size);
}

/* ---- randomness ---- */

static uint64_t random_state, uuid_count;

uint64_t sim_random(void)
{
    uint64_t mixed = random_state += 0x9e3779b97f4a7c15U;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
    return mixed ^ (mixed >> 31);
}

int64_t sim_between(int64_t least, int64_t most)
{
    return least + (int64_t)(sim_random() % (uint64_t)(most - least + 1));
}

static struct uuid make_uuid(int version)
{
    struct uuid uuid;
    uint64_t high = ++uuid_count, low = sim.seed ^ uuid_count << 40;
    memcpy(uuid.bytes, &high, sizeof(high));
    memcpy(uuid.bytes + 8, &low, sizeof(low));
    if (version == 7) {
        int64_t ms = clock_wall_us() / 1000;
        for (int i = 0; i < 6; i++)
            uuid.bytes[i] = (unsigned char)(ms >> (40 - 8 * i));
        uuid.bytes[15] = (unsigned char)uuid_count;
        uuid.bytes[14] = (unsigned char)(uuid_count >> 8);
    }
    uuid.bytes[6] = (unsigned char)((uuid.bytes[6] & 0x0f) | version << 4);
    uuid.bytes[8] = (unsigned char)((uuid.bytes[8] & 0x3f) | 0x80);
    return uuid;
}

struct uuid __wrap_uuid7_make(void);
struct uuid __wrap_uuid7_make(void)
{
    return make_uuid(7);
}

struct uuid __wrap_uuid4_make(void);
struct uuid __wrap_uuid4_make(void)
{
    return make_uuid(4);
}

uint64_t __wrap_backoff_random(void);
uint64_t __wrap_backoff_random(void)
{
    return sim_random();
}

/* ---- tasks: a heap by time ---- */

static struct sim_task tasks[TASKS_MAX];
static int task_count;
static int64_t task_order;

void sim_clockwork_reset(void)
{
    if (!arena) {
        arena = mmap(NULL, ARENA_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (arena == MAP_FAILED)
            abort();
    }
    arena_used = 0;
    memset(freed, 0, sizeof(freed));
    random_state = sim.seed;
    uuid_count = 0;
    task_count = 0;
    task_order = 0;
}

static bool is_before(const struct sim_task *left, const struct sim_task *right)
{
    return left->at_us != right->at_us ? left->at_us < right->at_us : left->order < right->order;
}

static void push(struct sim_task task)
{
    if (task_count == TASKS_MAX) {
        sim_fail("too many tasks");
        return;
    }
    int at = task_count++;
    while (at > 0 && is_before(&task, &tasks[(at - 1) / 2])) {
        tasks[at] = tasks[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    tasks[at] = task;
}

static struct sim_task pop(void)
{
    struct sim_task first = tasks[0], last = tasks[--task_count];
    int at = 0;
    for (int child = 1; child < task_count; child = 2 * at + 1) {
        if (child + 1 < task_count && is_before(&tasks[child + 1], &tasks[child]))
            child++;
        if (!is_before(&tasks[child], &last))
            break;
        tasks[at] = tasks[child];
        at = child;
    }
    tasks[at] = last;
    return first;
}

void sim_after(int64_t in_us, struct sim_worker *worker, void (*run)(void *subject, int64_t number), void *subject,
               int64_t number)
{
    push((struct sim_task){
        .at_us = sim.now_us + (in_us > 0 ? in_us : 0),
        .order = task_order++,
        .worker = worker,
        .life = worker ? worker->life : 0,
        .run = run,
        .subject = subject,
        .number = number,
    });
}

/* The end of an iteration of its loop. libuv runs first what was started last. */
static void run_prepares(struct sim_worker *worker)
{
    for (int i = worker->prepare_count; i-- > 0 && worker->is_up;)
        worker->prepares[i]->prepare_cb(worker->prepares[i]);
}

bool sim_step(int64_t until_us)
{
    if (task_count == 0 || tasks[0].at_us > until_us)
        return false;
    struct sim_task task = pop();
    struct sim_worker *worker = task.worker;
    sim.now_us = task.at_us;
    if (worker && (!worker->is_up || worker->life != task.life))
        return true;
    if (worker && worker->frozen_until_us > sim.now_us) {
        task.at_us = worker->frozen_until_us;
        push(task);
        return true;
    }
    sim.tasks_run++;
    sim.current = worker;
    task.run(task.subject, task.number);
    if (worker && worker->is_up && worker->frozen_until_us <= sim.now_us)
        run_prepares(worker);
    sim.current = NULL;
    return true;
}

/* ---- the clocks ---- */

int64_t __wrap_clock_wall_us(void);
int64_t __wrap_clock_wall_us(void)
{
    return sim.now_us + (sim.current ? sim.current->wall_offset_us : 0);
}

int64_t __wrap_clock_mono_us(void);
int64_t __wrap_clock_mono_us(void)
{
    return sim.now_us - SIM_START_US + HOUR;
}

int64_t __wrap_clock_mono_ms(void);
int64_t __wrap_clock_mono_ms(void)
{
    return __wrap_clock_mono_us() / 1000;
}

/* ---- libuv ---- */

uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return (uint64_t)__wrap_clock_mono_ms();
}

int __wrap_uv_timer_init(uv_loop_t *loop, uv_timer_t *timer);
int __wrap_uv_timer_init(uv_loop_t *loop, uv_timer_t *timer)
{
    memset(timer, 0, sizeof(*timer));
    timer->loop = loop;
    return 0;
}

int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb callback, uint64_t timeout, uint64_t repeat);

static void on_timer(void *subject, int64_t number)
{
    uv_timer_t *timer = subject;
    if (!timer->timer_cb || timer->start_id != (uint64_t)number)
        return;
    uv_timer_cb callback = timer->timer_cb;
    timer->timer_cb = NULL;
    if (timer->repeat)
        (void)__wrap_uv_timer_start(timer, callback, timer->repeat, timer->repeat);
    callback(timer);
}

/* A timer that is started again for the same time keeps its task. */
int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb callback, uint64_t timeout, uint64_t repeat)
{
    uint64_t due_ms = (uint64_t)__wrap_clock_mono_ms() + timeout;
    bool is_same = timer->timer_cb && timer->timeout == due_ms;
    timer->timer_cb = callback;
    timer->repeat = repeat;
    timer->timeout = due_ms;
    if (is_same)
        return 0;
    timer->start_id = (uint64_t)task_order;
    sim_after((int64_t)timeout * MS, timer->loop->data, on_timer, timer, (int64_t)timer->start_id);
    return 0;
}

int __wrap_uv_timer_stop(uv_timer_t *timer);
int __wrap_uv_timer_stop(uv_timer_t *timer)
{
    timer->timer_cb = NULL;
    return 0;
}

uint64_t __wrap_uv_timer_get_due_in(const uv_timer_t *timer);
uint64_t __wrap_uv_timer_get_due_in(const uv_timer_t *timer)
{
    uint64_t now_ms = (uint64_t)__wrap_clock_mono_ms();
    return timer->timer_cb && timer->timeout > now_ms ? timer->timeout - now_ms : 0;
}

int __wrap_uv_is_active(const uv_handle_t *handle);
int __wrap_uv_is_active(const uv_handle_t *handle)
{
    return ((const uv_timer_t *)handle)->timer_cb != NULL;
}

int __wrap_uv_prepare_init(uv_loop_t *loop, uv_prepare_t *prepare);
int __wrap_uv_prepare_init(uv_loop_t *loop, uv_prepare_t *prepare)
{
    memset(prepare, 0, sizeof(*prepare));
    prepare->loop = loop;
    return 0;
}

int __wrap_uv_prepare_start(uv_prepare_t *prepare, uv_prepare_cb callback);
int __wrap_uv_prepare_start(uv_prepare_t *prepare, uv_prepare_cb callback)
{
    struct sim_worker *worker = prepare->loop->data;
    prepare->prepare_cb = callback;
    if (worker->prepare_count == SIM_PREPARES)
        abort();
    worker->prepares[worker->prepare_count++] = prepare;
    return 0;
}
