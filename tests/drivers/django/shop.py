"""idem in Django, from 3.2 on."""
import pathlib
import sys

# README: load
from django.db import connection, transaction
from django.db.backends.signals import connection_created
from django.dispatch import receiver


@receiver(connection_created)
def load_idem(connection, **_):
    if connection.vendor == "sqlite":
        connection.connection.enable_load_extension(True)
        connection.connection.load_extension("./idem")
        connection.connection.enable_load_extension(False)
# README: end


# README: order
def place_order(key, body, pieces):
    with transaction.atomic():                             # commits, or rolls back on an exception
        outcome, token, status, answer = row(
            "SELECT outcome, token, http_status, coalesce(response, message)"
            " FROM idem_claim('shop', %s, idem_fingerprint(%s), 'POST /orders')", key, body)
        if outcome == "claimed":
            with connection.cursor() as cursor:            # or Order.objects.create(pieces=pieces)
                cursor.execute("INSERT INTO orders(pieces) VALUES (%s)", [pieces])
                number = cursor.lastrowid
                cursor.execute("UPDATE stock SET pieces = pieces - %s", [pieces])
            status, answer = 201, f'{{"order":{number}}}'
            row("SELECT idem_complete('shop', %s, %s, %s, %s)", key, token, answer, status)
    return status, answer


def row(sql, *values):
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchall()[0]
# README: end


if __name__ == "__main__":
    import django
    from django.conf import settings

    options = {"timeout": 10}
    if django.VERSION >= (5, 1):
        # Before 5.1 atomic() says BEGIN; a claim that comes first takes the write lock itself.
        options["transaction_mode"] = "IMMEDIATE"
    settings.configure(USE_TZ=True, DATABASES={"default": {
        "ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db", "OPTIONS": options}})
    django.setup()

    sys.path.append(str(pathlib.Path(__file__).parent.parent / "python"))
    import scenario
    scenario.run(lambda: connection, lambda db, *order: place_order(*order),
                 lambda db, sql, *values: row(sql.replace("?", "%s"), *values),
                 django.db.IntegrityError)
