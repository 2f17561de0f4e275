#!/usr/bin/env python3
"""Cost of issuing an invoice: lines, tax, postings, number, claim and answer, one transaction each.

    /usr/bin/python3 bench/ledger.py [documents] [--driver c] [--plain] [--slices n] [--folder path]

One process, a file database in WAL mode with synchronous=NORMAL and 64 MB of page cache. --driver c
runs the same statements from bench/ledger.c, without Python's share. --plain leaves out the
extension's claim and complete: the same ledger work alone. Prints the rate of every slice, so that
growth shows.
"""
import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "ledger"))
from ledger_book import MASTER, OUTPUT, RECEIVABLE, REVENUE, SCHEMA  # noqa: E402  (the tests')

CLAIM = "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('1', ?, ?, 'POST /v1/invoices')"
COMPLETE = "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_complete('1', ?, ?, ?, 201)"
DRAFT = """
    INSERT INTO sales_document (company_id, kind, customer_id, customer_name, customer_country,
                                order_channel, order_ref, order_part, currency, net_minor,
                                tax_minor, gross_minor, base_net_minor, base_tax_minor,
                                base_gross_minor, issue_date, due_date, idem_key)
    VALUES (1, 'invoice', ?, 'Customer', 'LT', 'web', ?, '1', 'EUR', 3500, 675, 4175, 3500, 675,
            4175, ?, '2026-12-31', ?)"""
LINE = """
    INSERT INTO sales_line (document_id, line_no, company_id, description, quantity_milli,
                            unit_price_minor, net_minor, tax_code)
    VALUES (?, ?, 1, ?, ?, ?, ?, ?)"""
TAX = """
    INSERT INTO sales_tax (document_id, tax_code, company_id, taxable_minor, tax_minor,
                           base_taxable_minor, base_tax_minor)
    VALUES (?1, ?2, 1, ?3, ?4, ?3, ?4)"""
ENTRY = """
    INSERT INTO journal_entry (company_id, entry_date, journal, source_kind, source_id, purpose)
    VALUES (1, ?, 'sales', 'sales_document', ?, 'issue')"""
POSTING = """
    INSERT INTO journal_line (entry_id, line_no, company_id, account_id, currency, amount_minor,
                              base_amount_minor, party_id, tax_code)
    VALUES (?1, ?2, 1, ?3, 'EUR', ?4, ?4, ?5, ?6)"""
ISSUE = """
    UPDATE sales_document
       SET status = 'issued', entry_id = :entry, issued_at = '2026-03-10T10:00:00Z',
           (series_id, period, number, full_number) =
             (SELECT series_id, period, number, full_number FROM next_number
               WHERE series_id = 1 AND period = '2026'),
           vat_period = (SELECT period FROM vat_period
                          WHERE company_id = 1 AND status = 'open' AND ends_on >= :date
                          ORDER BY ends_on LIMIT 1)
     WHERE id = :doc AND status = 'draft'
    RETURNING number, full_number"""


EXTENSION = os.environ.get("IDEM_SO", os.path.join(ROOT, "idem.so"))
RUN = 200


class Issuer:
    def __init__(self, path, plain):
        self.db = sqlite3.connect(path, isolation_level=None, cached_statements=256)
        self.plain = plain
        if not plain:
            self.db.enable_load_extension(True)
            self.db.load_extension(EXTENSION)
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON",
                       "recursive_triggers = ON", "busy_timeout = 5000", "cache_size = -65536"):
            self.db.execute("PRAGMA " + pragma)
        if not self.db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'company'").fetchone():
            self.db.executescript("BEGIN;" + SCHEMA + MASTER + "COMMIT;")
            self.db.execute("INSERT INTO party (id, company_id, name) WITH RECURSIVE n(i) AS"
                            " (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
                            " SELECT i, 1, 'Customer ' || i FROM n")
            if not plain:
                self.db.execute("SELECT idem_init()").fetchall()

    def issue(self, n):
        execute, many = self.db.execute, self.db.executemany
        customer, date = 1000 + n * 7919 % 2000, "2026-%02d-%02d" % (1 + n // 2500 % 12, 1 + n % 28)
        execute("BEGIN IMMEDIATE")
        if not self.plain:
            key = "order-%d-%032d" % (n, n)
            answer = execute(CLAIM, (key, "idem1:%064x" % n)).fetchone()[0]
            token = answer.split('"token":"', 1)[1].split('"', 1)[0]
        doc = execute(DRAFT, (customer, "SO-%d" % n, date, str(n))).lastrowid
        many(LINE, ((doc, 1, "Blue widget", 1000, 1000, 1000, "V21"),
                    (doc, 2, "Red widget", 2000, 1500, 2000, "V21"),
                    (doc, 3, "Book", 1000, 500, 500, "V9")))
        many(TAX, ((doc, "V21", 3000, 630), (doc, "V9", 500, 45)))
        entry = execute(ENTRY, (date, doc)).lastrowid
        many(POSTING, ((entry, 1, RECEIVABLE, 4175, customer, None),
                       (entry, 2, REVENUE, -3500, None, None),
                       (entry, 3, OUTPUT, -630, None, "V21"), (entry, 4, OUTPUT, -45, None, "V9")))
        number, full = execute(ISSUE, {"entry": entry, "date": date, "doc": doc}).fetchone()
        if not self.plain:
            execute(COMPLETE, (key, token, '{"id":%d,"number":"%s"}' % (doc, full))).fetchone()
        execute("COMMIT")


def run_python(issuer, documents, slices):
    n, begin, best = 0, time.perf_counter(), float("inf")
    for _ in range(slices):
        size = max(documents // slices // RUN, 1) * RUN
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(size // RUN):
            start = time.perf_counter()
            for n in range(n, n + RUN):
                issuer.issue(n)
            n += 1
            best = min(best, time.perf_counter() - start)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        print("%8d documents: %6.0f per second, %5.0f us each (%5.0f us of processor time)"
              % (n, size / wall, wall / size * 1e6, cpu / size * 1e6), flush=True)
    # On a busy machine the best run says more: it is long enough to hold several checkpoints.
    print("all: %.0f per second; best run of %d documents: %.0f per second"
          % (n / (time.perf_counter() - begin), RUN, RUN / best))


def run_c(path, plain, documents, slices, under):
    program = os.path.join(ROOT, "build", "ledger")
    os.makedirs(os.path.dirname(program), exist_ok=True)
    source = os.path.join(ROOT, "bench", "ledger.c")
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-O2", "-g", "-Wall", "-Wextra",
                    "-o", program, source, "-lsqlite3"], check=True)
    subprocess.run([*under.split(), program, path, "" if plain else EXTENSION, str(documents),
                    str(slices), "BEGIN IMMEDIATE", CLAIM, DRAFT, LINE, TAX, ENTRY, POSTING, ISSUE,
                    COMPLETE, "COMMIT"], check=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("documents", nargs="?", type=int, default=20000)
    options.add_argument("--driver", choices=["python", "c"], default="python")
    options.add_argument("--plain", action="store_true", help="without claim and complete")
    options.add_argument("--slices", type=int, default=10)
    options.add_argument("--folder", help="where to put the database")
    options.add_argument("--under", default="", help="a profiler to run the C driver under")
    options = options.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = os.path.join(folder, "book.db")
        issuer = Issuer(path, options.plain)
        if options.driver == "c":
            run_c(path, options.plain, options.documents, options.slices, options.under)
        else:
            run_python(issuer, options.documents, options.slices)
        healthy, gapless = issuer.db.execute(
            "SELECT NOT EXISTS (SELECT 1 FROM integrity_report),"
            " (SELECT count(*) = max(number) FROM sales_document)").fetchone()
        print("book healthy, numbers gapless" if healthy and gapless else "BOOK NOT HEALTHY")


if __name__ == "__main__":
    main()
