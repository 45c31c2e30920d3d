/* Preloaded into a program: the time between the end of its loop and the end of the process is half a second longer. */
#include <dlfcn.h>
#include <unistd.h>

int uv_loop_close(void *loop);

int uv_loop_close(void *loop)
{
    int (*close_loop)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "uv_loop_close");
    usleep(500 * 1000);
    return close_loop(loop);
}
