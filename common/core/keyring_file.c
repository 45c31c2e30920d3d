/* Creates the file of card keys, and changes it as a whole.
 *
 * Invariants: a change removes no key; a failure leaves the old file, and no other file beside it; two changes at once
 * wait for each other. A new file is read back with keyring_load() before it takes the old file's name. No message
 * contains a byte of a key, and every buffer that held a key is overwritten.
 *
 * The lock is flock(2) on the file itself. A change moves the name to a new file, so a process that has waited for the
 * lock checks whether the file that it locked still has the name. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/core/keyring.h"
#include "common/lib/base/clock.h"

#define KEY_SIZE 32
#define LINE_SIZE 160 /* of a new key */
#define LOCK_WAIT_MS 10000
#define LOCK_PAUSE_MS 20

static bool write_all(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t count = write(fd, text, length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return false;
        text += count;
        length -= (size_t)count;
    }
    return true;
}

/* Without this a crash may lose the file's name, and with the keys every card number that was sealed with them. */
static bool sync_directory(const char *path)
{
    char copy[PATH_MAX];
    if (strlen(path) >= sizeof(copy))
        return false;
    memcpy(copy, path, strlen(path) + 1);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    /* EINVAL: this file system cannot sync a directory, and there is no other way to do it. */
    bool done = fsync(fd) == 0 || errno == EINVAL;
    close(fd);
    return done;
}

/* Writes "<id> active <64 hex digits> # made TIME\n" with a new random key. Returns the length; 0 = no random bytes. */
static size_t format_key(char out[LINE_SIZE], uint32_t id)
{
    unsigned char key[KEY_SIZE];
    char made[KEYRING_TIME_SIZE];
    struct tm tm;
    time_t now = (time_t)(clock_wall_us() / 1000000);
    if (getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key) || !gmtime_r(&now, &tm) ||
        strftime(made, sizeof(made), "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        return 0;
    int length = snprintf(out, LINE_SIZE, "%" PRIu32 " active ", id);
    for (size_t i = 0; i < KEY_SIZE; i++)
        length += snprintf(out + length, LINE_SIZE - (size_t)length, "%02x", key[i]);
    secret_wipe(key, sizeof(key));
    return (size_t)(length + snprintf(out + length, LINE_SIZE - (size_t)length, " # made %s\n", made));
}

/* Creates a file and syncs it; removes it after a failure. like: gives mode and owner; NULL = mode 0600, our owner. */
static bool create(const char *path, const char *text, size_t length, const struct stat *like, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(err, errno == EEXIST ? ERR_REFUSED : ERR_SYSTEM, "%s: %s", path,
                       errno == EEXIST ? "exists and is never overwritten" : strerror(errno));
    bool done = (!like || fchown(fd, like->st_uid, like->st_gid) == 0) &&
                fchmod(fd, like ? like->st_mode & 07777 : 0600) == 0 && write_all(fd, text, length) && fsync(fd) == 0;
    int error = errno;
    if (close(fd) != 0 && done) {
        error = errno;
        done = false;
    }
    if (!done) {
        (void)unlink(path);
        return err_set(err, ERR_SYSTEM, "%s: %s", path, strerror(error));
    }
    return true;
}

bool keyring_generate(const char *path, uint32_t *ret_key_id, struct err *err)
{
    static const char head[] = "# Keys for card numbers. Without this file they are lost, with it anybody can read "
                               "them.\n"
                               "# <id> <state> <64 hex digits>; state: active (one), decrypt, retired\n";
    const uint32_t id = 1;
    char text[sizeof(head) + LINE_SIZE];
    memcpy(text, head, sizeof(head) - 1);
    size_t length = format_key(text + sizeof(head) - 1, id);
    if (length == 0)
        return err_set(err, ERR_SYSTEM, "no random bytes for a key");
    bool done = create(path, text, sizeof(head) - 1 + length, NULL, err);
    secret_wipe(text, sizeof(text));
    if (!done)
        return false;
    if (!sync_directory(path)) {
        int error = errno;
        (void)unlink(path);
        return err_set(err, ERR_SYSTEM, "%s: %s", path, strerror(error));
    }
    *ret_key_id = id;
    return true;
}

/* ---- a change ---- */

struct change {
    const char *path;
    int fd; /* holds the lock */
    struct stat old;
    char new_path[PATH_MAX];
    struct keyring *keyring; /* the keys of the old file */
    struct secret text;      /* of the old file, without its last newline */
    char *out;               /* the new file */
    size_t out_length, out_size;
};

static bool is_same_file(const struct stat *left, const struct stat *right)
{
    return left->st_dev == right->st_dev && left->st_ino == right->st_ino && left->st_size == right->st_size &&
           left->st_mtim.tv_sec == right->st_mtim.tv_sec && left->st_mtim.tv_nsec == right->st_mtim.tv_nsec;
}

static bool check_old(const struct change *change, struct err *err)
{
    if (!S_ISREG(change->old.st_mode))
        return err_set(err, ERR_REFUSED, "%s: not a regular file", change->path);
    if (change->old.st_nlink != 1)
        return err_set(err, ERR_REFUSED, "%s: the file has more than one name, and only this one would change",
                       change->path);
    if (change->old.st_uid != geteuid() && geteuid() != 0)
        return err_set(err, ERR_REFUSED, "%s: the file belongs to another user; run this as its owner or as root",
                       change->path);
    return true;
}

/* Opens and locks the file that has the name while it holds the lock. */
static bool lock(struct change *change, struct err *err)
{
    int64_t started_ms = clock_mono_ms();
    for (;;) {
        struct stat named;
        int fd = open(change->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (fd < 0)
            return err_set(err, errno == ELOOP ? ERR_REFUSED : ERR_CONFIG, "%s: %s", change->path,
                           errno == ELOOP ? "is a symbolic link; name the file itself" : strerror(errno));
        /* guard: two changes of a keys file wait for each other */
        bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
        int error = errno;
        if (locked && fstat(fd, &change->old) == 0 && lstat(change->path, &named) == 0 &&
            is_same_file(&change->old, &named)) {
            change->fd = fd;
            return check_old(change, err);
        }
        close(fd);
        if (!locked && error != EWOULDBLOCK && error != EINTR)
            return err_set(err, ERR_SYSTEM, "%s: it cannot be locked: %s", change->path, strerror(error));
        if (clock_mono_ms() - started_ms > LOCK_WAIT_MS)
            return err_set(err, ERR_REFUSED, "%s: somebody else is changing it", change->path);
        (void)nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_MS * 1000000L}, NULL);
    }
}

static bool begin(struct change *change, const char *path, struct err *err)
{
    *change = (struct change){.path = path, .fd = -1};
    int length = snprintf(change->new_path, sizeof(change->new_path), "%s.new", path);
    if (length < 0 || (size_t)length >= sizeof(change->new_path))
        return err_set(err, ERR_USAGE, "the name of the file is too long");
    if (!lock(change, err) || !keyring_load(path, &change->keyring, err) || !secret_load(&change->text, path, err))
        return false;
    /* Space for a longer state word and a newline in every line, and for the line of a new key. */
    change->out_size = change->text.length + 2 * KEYRING_KEYS_MAX + LINE_SIZE + 2;
    change->out = malloc(change->out_size);
    return change->out || err_set(err, ERR_MEMORY, "out of memory for a key file");
}

static void done_with(struct change *change)
{
    keyring_free(change->keyring);
    secret_done(&change->text);
    if (change->out)
        secret_wipe(change->out, change->out_size);
    free(change->out);
    if (change->fd >= 0)
        close(change->fd);
}

static void put(struct change *change, const char *bytes, size_t length)
{
    memcpy(change->out + change->out_length, bytes, length);
    change->out_length += length;
}

/* Copies all lines, and changes the state of this key. Precondition: keyring_load() has accepted the file. */
static void copy_with_state(struct change *change, uint32_t key_id, enum keyring_state state)
{
    const char *at = (const char *)change->text.bytes, *end = at + change->text.length;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *next = newline ? newline : end;
        const char *id = at + strspn(at, " \t\r");
        char *after_id = NULL;
        if (*id >= '0' && *id <= '9' && strtoul(id, &after_id, 10) == key_id) {
            const char *word = after_id + strspn(after_id, " \t\r"), *name = keyring_state_name(state);
            put(change, at, (size_t)(word - at));
            put(change, name, strlen(name));
            at = word + strcspn(word, " \t\r");
        }
        put(change, at, (size_t)(next - at));
        put(change, "\n", 1);
        at = newline ? newline + 1 : end;
    }
}

/* Whether the new file has every key of the old one, unchanged, and `more` new ones. */
static bool check_new(struct change *change, size_t more, struct err *err)
{
    struct keyring *fresh = NULL;
    if (!keyring_load(change->new_path, &fresh, err))
        return false;
    size_t count = keyring_count(change->keyring), found = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < keyring_count(fresh); j++)
            found += keyring_entry(fresh, j).id == keyring_entry(change->keyring, i).id;
    bool whole = found == count && keyring_count(fresh) == count + more;
    keyring_free(fresh);
    if (!whole)
        return err_set(err, ERR_SYSTEM, "%s: a key would be lost; nothing was changed", change->path);
    return keyring_load_over(change->new_path, &change->keyring, err);
}

/* The new file takes the name of the old one. */
static bool finish(struct change *change, size_t more, struct err *err)
{
    struct stat named;
    if (change->out_length > SECRET_FILE_MAX)
        return err_set(err, ERR_REFUSED, "%s: the file would be longer than %d bytes", change->path, SECRET_FILE_MAX);
    /* We hold the lock, so a file of this name is left from a process that died before its rename. */
    if (unlink(change->new_path) != 0 && errno != ENOENT)
        return err_set(err, ERR_SYSTEM, "%s: %s", change->new_path, strerror(errno));
    if (!create(change->new_path, change->out, change->out_length, &change->old, err))
        return false;
    bool done = check_new(change, more, err);
    if (done && (lstat(change->path, &named) != 0 || !is_same_file(&change->old, &named)))
        done = err_set(err, ERR_REFUSED, "%s: somebody else has changed it", change->path);
    if (done && rename(change->new_path, change->path) != 0)
        done = err_set(err, ERR_SYSTEM, "%s: %s", change->path, strerror(errno));
    if (!done) {
        (void)unlink(change->new_path);
        return false;
    }
    return sync_directory(change->path) ||
           err_set(err, ERR_SYSTEM, "%s is changed, but may not outlast a crash: its folder could not be synced: %s",
                   change->path, strerror(errno));
}

static bool rotate(struct change *change, uint32_t *ret_new_id, uint32_t *ret_old_id, struct err *err)
{
    uint32_t newest = 0;
    size_t count = keyring_count(change->keyring);
    for (size_t i = 0; i < count; i++)
        newest = keyring_entry(change->keyring, i).id > newest ? keyring_entry(change->keyring, i).id : newest;
    /* An id is never used twice, because a record names its key by this id. */
    if (newest == UINT32_MAX || count == KEYRING_KEYS_MAX)
        return err_set(err, ERR_REFUSED, "%s: there is no room for another key; remove retired ones", change->path);
    *ret_new_id = newest + 1;
    *ret_old_id = keyring_active_id(change->keyring);
    copy_with_state(change, *ret_old_id, KEYRING_DECRYPT);
    size_t length = format_key(change->out + change->out_length, *ret_new_id);
    change->out_length += length;
    return length > 0 ? finish(change, 1, err) : err_set(err, ERR_SYSTEM, "no random bytes for a key");
}

bool keyring_rotate(const char *path, uint32_t *ret_new_id, uint32_t *ret_old_id, struct err *err)
{
    struct change change;
    uint32_t new_id = 0, old_id = 0;
    bool done = begin(&change, path, err) && rotate(&change, &new_id, &old_id, err);
    done_with(&change);
    if (done) {
        *ret_new_id = new_id;
        *ret_old_id = old_id;
    }
    return done;
}

static bool retire(struct change *change, uint32_t key_id, struct err *err)
{
    for (size_t i = 0; i < keyring_count(change->keyring); i++) {
        struct keyring_entry entry = keyring_entry(change->keyring, i);
        if (entry.id != key_id)
            continue;
        if (entry.state == KEYRING_ACTIVE)
            return err_set(err, ERR_REFUSED, "key %" PRIu32 " is the active one; rotate first", key_id);
        copy_with_state(change, key_id, KEYRING_RETIRED);
        return finish(change, 0, err);
    }
    return err_set(err, ERR_REFUSED, "%s has no key %" PRIu32, change->path, key_id);
}

bool keyring_retire(const char *path, uint32_t key_id, struct err *err)
{
    struct change change;
    bool done = begin(&change, path, err) && retire(&change, key_id, err);
    done_with(&change);
    return done;
}
