/* See charges_file.h. Invariant: the file holds whole lines only, and the last line of a key is what is known of it. */
#include "sandbox/charges_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "common/lib/json/json_writer.h"

#define LINE_MAX_BYTES ((size_t)1 << 20)
#define FINGERPRINT_SIZE 17

struct charges_file {
    int descriptor;
    struct buf line; /* scratch */
};

struct line_texts {
    char key[LEDGER_TEXT_MAX + 1], user_id[LEDGER_TEXT_MAX + 1], fingerprint[FINGERPRINT_SIZE];
    char *answer; /* owned */
};

static must_check bool read_line(struct slice line, struct charges *charges, int64_t now_ms, struct line_texts *texts)
{
    int64_t executions, status;
    if (!json_strict_check(line.bytes, line.length, NULL))
        return false;
    struct json_value row = json_value_of(line.bytes, line.length);
    size_t key_length, user_length, answer_length;
    if (!json_string(json_member(row, "key"), texts->key, sizeof(texts->key), &key_length) ||
        !json_string(json_member(row, "user_id"), texts->user_id, sizeof(texts->user_id), &user_length) ||
        !json_string(json_member(row, "fingerprint"), texts->fingerprint, sizeof(texts->fingerprint), NULL) ||
        !json_string(json_member(row, "answer"), texts->answer, LINE_MAX_BYTES, &answer_length) ||
        !json_integer(json_member(row, "executions"), 0, UINT32_MAX, &executions) ||
        !json_integer(json_member(row, "status"), 200, 599, &status))
        return false;
    struct slice key = {.bytes = texts->key, .length = key_length};
    struct charge *charge = charges_of(charges, key, (struct slice){.bytes = texts->user_id, .length = user_length});
    if (!charge)
        return false;
    charges_restore(charges, charge, (uint32_t)executions, now_ms);
    return charges_keep(charges, charge, strtoull(texts->fingerprint, NULL, 16), (int)status,
                        (struct slice){.bytes = texts->answer, .length = answer_length}, now_ms);
}

/* ret_length: of the whole lines. */
static must_check bool read_lines(FILE *lines, struct charges *charges, int64_t now_ms, off_t *ret_length,
                                  struct err *err)
{
    struct line_texts texts = {.answer = malloc(LINE_MAX_BYTES)};
    char *line = NULL;
    size_t capacity = 0, number = 0;
    ssize_t length = 0;
    bool fine = texts.answer || err_set(err, ERR_MEMORY, "out of memory");
    *ret_length = 0;
    while (fine && (length = getline(&line, &capacity, lines)) > 0 && line[length - 1] == '\n') {
        number++;
        *ret_length += length;
        fine = read_line((struct slice){.bytes = line, .length = (size_t)length}, charges, now_ms, &texts) ||
               err_set(err, ERR_MALFORMED, "charges file: line %zu is not one of ours, or memory is out", number);
    }
    if (fine && ferror(lines))
        fine = err_set(err, ERR_SYSTEM, "charges file: %s", strerror(errno));
    free(line);
    free(texts.answer);
    return fine;
}

bool charges_file_open(const char *path, struct charges *charges, int64_t now_ms, struct charges_file **ret_file,
                       struct err *err)
{
    struct charges_file *file = calloc(1, sizeof(*file));
    if (!file)
        return err_set(err, ERR_MEMORY, "out of memory");
    buf_init(&file->line, LINE_MAX_BYTES);
    file->descriptor = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    FILE *lines = file->descriptor < 0 ? NULL : fopen(path, "re");
    off_t length;
    bool fine = lines || err_set(err, ERR_SYSTEM, "charges file: %s", strerror(errno));
    fine = fine && read_lines(lines, charges, now_ms, &length, err);
    if (fine && ftruncate(file->descriptor, length) != 0)
        fine = err_set(err, ERR_SYSTEM, "charges file: %s", strerror(errno));
    if (lines)
        fclose(lines);
    if (fine)
        *ret_file = file;
    else
        charges_file_close(file);
    return fine;
}

void charges_file_close(struct charges_file *file)
{
    if (!file)
        return;
    if (file->descriptor >= 0)
        close(file->descriptor);
    buf_done(&file->line);
    free(file);
}

bool charges_file_add(struct charges_file *file, const struct charge *charge)
{
    char fingerprint[FINGERPRINT_SIZE];
    if (!file)
        return true;
    snprintf(fingerprint, sizeof(fingerprint), "%" PRIx64, charge->fingerprint);
    buf_reset(&file->line);
    struct json_writer writer = json_writer_of(&file->line);
    json_open_object(&writer, NULL);
    json_add_text(&writer, "key", charge->key);
    json_add_text(&writer, "user_id", charge->user_id);
    json_add_text(&writer, "fingerprint", fingerprint);
    json_add_integer(&writer, "executions", charge->executions);
    json_add_integer(&writer, "status", charge->status);
    json_add_text(&writer, "answer", charge->body);
    json_close_object(&writer);
    buf_put_byte(&file->line, '\n');
    return !file->line.failed &&
           write(file->descriptor, file->line.bytes, file->line.length) == (ssize_t)file->line.length;
}

bool charges_file_reset(struct charges_file *file)
{
    return !file || ftruncate(file->descriptor, 0) == 0;
}
