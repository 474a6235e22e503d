"""moto's server with one put at a time: it looks for a key and makes it in two steps, so that two creates could both win.

S3 itself decides such a race. Started as a script, with moto's own arguments.
"""

import functools
import threading

from moto.s3.responses import S3Response
from moto.server import main

_ONE_AT_A_TIME = threading.Lock()


def alone(put):
    """The method, for one request at a time; its body has come by then."""

    @functools.wraps(put)
    def held(response):
        with _ONE_AT_A_TIME:
            return put(response)

    return held


if __name__ == "__main__":
    S3Response.put_object = alone(S3Response.put_object)
    main()
