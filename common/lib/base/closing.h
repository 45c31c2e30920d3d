/* Closes the libuv handles and the parts of a module, and reports once when all of them are closed.
 *
 *     closing_start(&module->closing, release, module, on_closed, context);
 *     closing_handle(&module->closing, &module->timer);
 *     part_close(module->part, closing_part_closed, closing_part(&module->closing));
 *     closing_end(&module->closing);
 *
 * A struct closing is embedded in the module that it closes. libuv closes a handle at the end of a loop iteration, so
 * the memory of the module must live until `release` is called. */
#ifndef ISSUING_CLOSING_H
#define ISSUING_CLOSING_H

struct closing {
    int open_count; /* handles and parts that are not closed yet; one more until closing_end() */
    void (*release)(void *module);
    void *module;
    void (*on_closed)(void *context);
    void *context;
};

/* Starts closing. When all is closed, `release` is called with `module`, which it may free with the struct closing
 * inside; then `on_closed` is called with `context`. Either function may be NULL. */
void closing_start(struct closing *closing, void (*release)(void *module), void *module,
                   void (*on_closed)(void *context), void *context);
/* Closes a libuv handle of the module (any handle type). The handle must be initialised and not closing; its `data` is
 * overwritten. */
void closing_handle(struct closing *closing, void *handle);
/* Counts one part, which closes by itself and then calls closing_part_closed(closing). Returns closing. */
struct closing *closing_part(struct closing *closing);
/* The on_closed callback for a part; `closing` is a struct closing. */
void closing_part_closed(void *closing);
/* Every handle and part has been named. If all of them are closed already, `release` and `on_closed` are called now. */
void closing_end(struct closing *closing);

#endif
