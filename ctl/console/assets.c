/* See assets.h. */
#include "ctl/console/assets.h"

#include "console_css.h"
#include "console_icon.h"
#include "console_js.h"

static const struct asset assets[] = {
    {"/console.css", "text/css; charset=utf-8", console_css, &console_css_length},
    {"/console.js", "text/javascript; charset=utf-8", console_js, &console_js_length},
    {"/icon.svg", "image/svg+xml", console_icon, &console_icon_length},
};

const struct asset *assets_find(struct slice path)
{
    for (size_t i = 0; i < ARRAY_SIZE(assets); i++)
        if (slice_is(path, assets[i].path))
            return &assets[i];
    return NULL;
}
