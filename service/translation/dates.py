"""Names of months and days, and formats of dates, by language, from the Unicode CLDR. English dates begin with the day.

Times have 24 hours, and all numbers Western digits, in every language.
"""

from datetime import datetime
from typing import NamedTuple


class DateFormats(NamedTuple):
    """The names and formats of a language. Names are separated by spaces.

    Placeholders of a format: {day}, {month}, {short_month}, {number} of the month, {year}, {weekday}.
    """

    months: str
    short_months: str
    weekdays: str  # Monday first
    date: str
    date_of_year: str  # a date in the current year
    full_date: str
    month_and_year: str
    date_and_time: str

    def format(self, pattern: str, date: datetime) -> str:
        """Return a date in one of the formats."""
        return pattern.format(
            day=date.day,
            month=self.months.split()[date.month - 1],
            short_month=self.short_months.split()[date.month - 1],
            number=date.month,
            year=date.year,
            weekday=self.weekdays.split()[date.weekday()],
        )


FORMATS = {
    "ar": DateFormats(
        "يناير فبراير مارس أبريل مايو يونيو يوليو أغسطس سبتمبر أكتوبر نوفمبر ديسمبر",
        "يناير فبراير مارس أبريل مايو يونيو يوليو أغسطس سبتمبر أكتوبر نوفمبر ديسمبر",
        "الاثنين الثلاثاء الأربعاء الخميس الجمعة السبت الأحد",
        "{day} {short_month} {year}",
        "{day} {short_month}",
        "{weekday}، {day} {month} {year}",
        "{month} {year}",
        "{date}، {time}",
    ),
    "de": DateFormats(
        "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
        "Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez.",
        "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
        "{day}. {short_month} {year}",
        "{day}. {short_month}",
        "{weekday}, {day}. {month} {year}",
        "{month} {year}",
        "{date}, {time}",
    ),
    "en": DateFormats(
        "January February March April May June July August September October November December",
        "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec",
        "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
        "{day} {short_month} {year}",
        "{day} {short_month}",
        "{weekday}, {day} {month} {year}",
        "{month} {year}",
        "{date}, {time}",
    ),
    "es": DateFormats(
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "ene feb mar abr may jun jul ago sept oct nov dic",
        "lunes martes miércoles jueves viernes sábado domingo",
        "{day} {short_month} {year}",
        "{day} {short_month}",
        "{weekday}, {day} de {month} de {year}",
        "{month} de {year}",
        "{date}, {time}",
    ),
    "fr": DateFormats(
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc.",
        "lundi mardi mercredi jeudi vendredi samedi dimanche",
        "{day} {short_month} {year}",
        "{day} {short_month}",
        "{weekday} {day} {month} {year}",
        "{month} {year}",
        "{date}, {time}",
    ),
    "ja": DateFormats(
        "1月 2月 3月 4月 5月 6月 7月 8月 9月 10月 11月 12月",
        "1月 2月 3月 4月 5月 6月 7月 8月 9月 10月 11月 12月",
        "月曜日 火曜日 水曜日 木曜日 金曜日 土曜日 日曜日",
        "{year}年{number}月{day}日",
        "{number}月{day}日",
        "{year}年{number}月{day}日{weekday}",
        "{year}年{number}月",
        "{date} {time}",
    ),
    "pt-BR": DateFormats(
        "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
        "jan. fev. mar. abr. mai. jun. jul. ago. set. out. nov. dez.",
        "segunda-feira terça-feira quarta-feira quinta-feira sexta-feira sábado domingo",
        "{day} de {short_month} de {year}",
        "{day} de {short_month}",
        "{weekday}, {day} de {month} de {year}",
        "{month} de {year}",
        "{date} {time}",
    ),
    "zh-Hans": DateFormats(
        "一月 二月 三月 四月 五月 六月 七月 八月 九月 十月 十一月 十二月",
        "1月 2月 3月 4月 5月 6月 7月 8月 9月 10月 11月 12月",
        "星期一 星期二 星期三 星期四 星期五 星期六 星期日",
        "{year}年{number}月{day}日",
        "{number}月{day}日",
        "{year}年{number}月{day}日{weekday}",
        "{year}年{number}月",
        "{date} {time}",
    ),
}
